"""Which NATS servers can be used: 2.11 or newer (message TTL, first sequence of a stream), with JetStream."""

import re
from collections.abc import Mapping
from typing import Any

from muster.bus.errors import UnsuitableServerError

OLDEST = (2, 11)
VERSION = re.compile(r"v?(\d+)\.(\d+)")


def check_server(info: Mapping[str, Any]) -> None:
    """Judge a server by its INFO.

    Raises:
        UnsuitableServerError: it is older than 2.11, does not tell its version, or has no JetStream.
    """
    version = str(info.get("version", ""))
    matched = VERSION.match(version)
    oldest = ".".join(map(str, OLDEST))
    name = info.get("server_name") or info.get("server_id") or "?"
    if matched is None:
        raise UnsuitableServerError(
            f"NATS server {name!r} tells no usable version ({version!r}); {oldest} or newer is needed"
        )
    if (int(matched[1]), int(matched[2])) < OLDEST:
        raise UnsuitableServerError(
            f"NATS server {name!r} is version {version}; Muster needs {oldest} or newer (tombstones with a time to live). "
            "Upgrade it, or start Muster with its own: pip install 'muster[embedded]'"
        )
    if not info.get("jetstream", False):
        raise UnsuitableServerError(
            f"NATS server {name!r} (version {version}) has no JetStream; start it with `jetstream {{ store_dir: … }}`"
        )
