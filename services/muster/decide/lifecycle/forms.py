"""The form of what people write: which fields are texts, numbers, lists or mappings, as far as Muster reads them.

Custom resources and submissions may hold anything where a pod template belongs. Once a template has this form, the rest
of the code may read it as plain JSON without asking of each value what it is.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.decide.field_problems import in_words
from muster.decide.findings import Problem

Quantity = str | int | float


class Form(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base: fields that are not named may hold anything."""


class Metadata(Form, frozen=True):
    """Metadata of an object or a template."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Any] = []
    finalizers: list[Any] = []


class Resources(Form, frozen=True):
    """What a container asks for."""

    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class Profile(Form, frozen=True):
    """A seccomp or AppArmor profile."""

    type: str = ""


class SelinuxOptions(Form, frozen=True):
    """SELinux options."""

    type: str = ""
    user: str = ""
    role: str = ""


class WindowsOptions(Form, frozen=True):
    """Windows options."""

    host_process: bool = False


class Capabilities(Form, frozen=True):
    """Linux capabilities."""

    add: list[str] = []


class Sysctl(Form, frozen=True):
    """A kernel setting."""

    name: str = ""


class SecurityContext(Form, frozen=True):
    """Of a pod or a container."""

    privileged: bool = False
    proc_mount: str = ""
    capabilities: Capabilities = Capabilities()
    seccomp_profile: Profile = Profile()
    app_armor_profile: Profile = Profile()
    windows_options: WindowsOptions = WindowsOptions()
    se_linux_options: SelinuxOptions = SelinuxOptions()
    sysctls: list[Sysctl] = []


class Variable(Form, frozen=True):
    """An environment variable."""

    name: str = ""
    value: str = ""


class Port(Form, frozen=True):
    """A container's port."""

    host_port: int = 0


class Container(Form, frozen=True):
    """A container."""

    name: str = ""
    image: str = ""
    env: list[Variable] = []
    ports: list[Port] = []
    volume_mounts: list[dict[str, Any]] = []
    resources: Resources = Resources()
    security_context: SecurityContext = SecurityContext()


class HostPath(Form, frozen=True):
    """A path on the node."""

    path: str = ""


class Volume(Form, frozen=True):
    """A volume."""

    name: str = ""
    host_path: HostPath | None = None


class PodSpec(Form, frozen=True):
    """A pod's spec."""

    scheduler_name: str = ""
    service_account_name: str = ""
    service_account: str = ""
    priority_class_name: str = ""
    node_name: str = ""
    restart_policy: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    security_context: SecurityContext = SecurityContext()
    volumes: list[Volume] = []
    containers: list[Container] = []
    init_containers: list[Container] = []


class Template(Form, frozen=True):
    """A pod template."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class BatchSpec(Form, frozen=True):
    """A batch/v1 Job's spec."""

    parallelism: int = 1
    suspend: bool = False
    template: Template = Template()


def form_problem(document: Mapping[str, Any], form: type[Form], *, path: str) -> Problem | None:
    """What in a document (without null fields) has not the form, None when all has."""
    try:
        msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        return Problem(
            field=(path + where.strip("`").removeprefix("$")).removeprefix("."), value="", message=in_words(message)
        )
    return None
