"""Configuration of a service process: explicit values, or the environment that the chart and `muster up` set.

KUBECONFIG is never read: which cluster is touched is always said by name (MUSTER_KUBECONFIG or in-cluster).
"""

import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec


class LeaseTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: how long a lease holds, how often it is renewed, how long a write may take."""

    duration: float = 15.0
    renew: float = 5.0
    write_timeout: float = 5.0


class ConfigError(ValueError):
    """A wrong setting; the message names the variable, the value and what would be right."""


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a service needs to know before it starts."""

    nats_url: str = "nats://127.0.0.1:4222"
    kubeconfig: Path | None = None
    in_cluster: bool = False
    namespace: str = "muster-system"
    """Where leases live."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    """0: any free port."""
    ports_directory: Path | None = None
    """Where the chosen metrics port is written, as ``<service>-<pid>.port``."""
    log_format: Literal["json", "console"] = "json"
    log_level: str = "info"
    lease: LeaseTimings = LeaseTimings()
    policy_path: Path | None = None
    identity: str = msgspec.field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    )
    """Per process, never reused."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "ServiceConfig":
        """The configuration that MUSTER_* variables state; what is not set has its default.

        Raises:
            ConfigError: a value cannot be read.
        """
        values: dict[str, object] = {}
        for field, variable in VARIABLES.items():
            text = environ.get(variable, "")
            if text:
                values[field] = text
        lease = {name: environ[variable] for name, variable in LEASE_VARIABLES.items() if environ.get(variable)}
        if lease:
            values["lease"] = lease
        try:
            return msgspec.convert(values, cls, strict=False, dec_hook=_decode)
        except msgspec.ValidationError as error:
            field = str(error).rpartition("$.")[2].strip("`")
            variable = VARIABLES.get(field) or LEASE_VARIABLES.get(field.rpartition(".")[2], field)
            raise ConfigError(f"{variable}={environ.get(variable)!r}: {str(error).partition(' - ')[0]}") from error


VARIABLES = {
    "nats_url": "MUSTER_NATS_URL",
    "kubeconfig": "MUSTER_KUBECONFIG",
    "in_cluster": "MUSTER_IN_CLUSTER",
    "namespace": "MUSTER_NAMESPACE",
    "metrics_host": "MUSTER_METRICS_HOST",
    "metrics_port": "MUSTER_METRICS_PORT",
    "ports_directory": "MUSTER_PORTS_DIRECTORY",
    "log_format": "MUSTER_LOG_FORMAT",
    "log_level": "MUSTER_LOG_LEVEL",
    "policy_path": "MUSTER_POLICY",
    "identity": "MUSTER_IDENTITY",
}
LEASE_VARIABLES = {
    "duration": "MUSTER_LEASE_DURATION",
    "renew": "MUSTER_LEASE_RENEW",
    "write_timeout": "MUSTER_LEASE_WRITE_TIMEOUT",
}


def _decode(kind: type, value: object) -> object:
    if kind is Path or Path in getattr(kind, "__args__", ()):
        return Path(str(value))
    raise TypeError(f"cannot read {value!r} as {kind}")
