"""What a pod asks of its node, summed as kubelet sums it.

The larger of (all containers together with the restartable init containers) and (each plain init container with the restartable
ones before it), plus the pod's overhead. CPU is in thousandths of a core, everything else in its base unit (bytes, counts).
A container that names only a limit requests that much.
"""

from collections.abc import Mapping
from typing import Any

from muster.model.quantity import to_units

GPU = "nvidia.com/gpu"
GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_CORE = "volcano.sh/gpu-core"
GPU_NUMBER = "volcano.sh/gpu-number"


def pod_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Amounts by resource name; zero amounts are left out."""
    spec = pod["spec"]
    total: dict[str, int] = {}
    for container in spec["containers"]:
        _add(total, container_requests(container))
    restartable: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(restartable, asked)
            _raise_to(peak, restartable)
        else:
            during = dict(restartable)
            _add(during, asked)
            _raise_to(peak, during)
    _add(total, restartable)
    _raise_to(total, peak)
    _add(total, {name: amount(name, value) for name, value in (spec.get("overhead") or {}).items()})
    return {name: value for name, value in total.items() if value}


def container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    """Requests of one container, completed by its limits."""
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(name, value) for name, value in named.items()}


def amount(name: str, value: str | float) -> int:
    """A quantity in the unit its resource is counted in."""
    return to_units(value, 1000 if name == "cpu" else 1)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, value in least.items():
        total[name] = max(total.get(name, 0), value)
