"""What a pod asks of its node, by Kubernetes' own rule.

    request = max( Σ containers + Σ restartable init,  each plain init + the restartable ones before it ) + overhead

Limits stand in for missing requests. Cards follow the same rule and are settled at the end: whole cards or one share.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.decide.cards import (
    CORE_NAMES,
    MEMORY_NAMES,
    NUMBER_NAMES,
    VGPU_NUMBER,
    VGPU_PERCENTAGE,
    Asked,
    asked_by,
    canonical,
)
from muster.model.pods import Request
from muster.model.quantity import to_bytes, to_milli_cpu, to_units
from muster.model.units import Bytes, MilliCpu

DEFAULT_CARD = "nvidia.com/gpu"
CARD_NAMES = MEMORY_NAMES | CORE_NAMES | NUMBER_NAMES | {VGPU_PERCENTAGE}


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts of one container or of several together."""

    cpu: int = 0
    memory: int = 0
    extended: dict[str, int] = {}
    asked: Asked = Asked()

    def plus(self, other: "Amounts") -> "Amounts":
        """Both at the same time."""
        names = self.extended.keys() | other.extended.keys()
        return Amounts(
            cpu=self.cpu + other.cpu,
            memory=self.memory + other.memory,
            extended={name: self.extended.get(name, 0) + other.extended.get(name, 0) for name in names},
            asked=self.asked.plus(other.asked),
        )

    def at_least(self, other: "Amounts") -> "Amounts":
        """One after the other."""
        names = self.extended.keys() | other.extended.keys()
        return Amounts(
            cpu=max(self.cpu, other.cpu),
            memory=max(self.memory, other.memory),
            extended={name: max(self.extended.get(name, 0), other.extended.get(name, 0)) for name in names},
            asked=self.asked.at_least(other.asked),
        )


NOTHING = Amounts()


def amounts_of(named: Mapping[str, Any], *, card_resources: Iterable[str]) -> Amounts:
    """A resource list in exact units: cpu in thousandths, memory in bytes, the rest as counts."""
    cpu = memory = 0
    extended: dict[str, int] = {}
    cards = False
    for name, value in named.items():
        if name == "cpu":
            cpu = to_milli_cpu(value)
        elif name == "memory":
            memory = to_bytes(value)
        elif canonical(name, card_resources) in CARD_NAMES or canonical(name, card_resources) in card_resources:
            cards = True
        else:
            extended[name] = to_units(value)
    return Amounts(
        cpu=cpu,
        memory=memory,
        extended=extended,
        asked=asked_by(named, card_resources=card_resources) if cards else Asked(),
    )


def pod_request(spec: Any, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Request:
    """The request of a pod spec (attributes containers, init_containers, overhead, resources).

    Raises:
        QuantityError: an amount is no quantity; the API server does not let that happen.
    """

    def one(container: Any) -> Amounts:
        resources = container.resources
        return amounts_of({**resources.limits, **resources.requests}, card_resources=card_resources)

    total = NOTHING
    for container in spec.containers:
        total = total.plus(one(container)) if total is not NOTHING else one(container)
    if spec.init_containers:
        restartable = NOTHING
        peak = NOTHING
        for container in spec.init_containers:
            amounts = one(container)
            if container.restart_policy == "Always":
                restartable = restartable.plus(amounts)
                peak = peak.at_least(restartable)
            else:
                peak = peak.at_least(restartable.plus(amounts))
        total = total.plus(restartable).at_least(peak)
    if spec.resources is not None:
        # Pod-level resources, where given, are the pod's cpu and memory.
        whole = amounts_of({**spec.resources.limits, **spec.resources.requests}, card_resources=card_resources)
        total = msgspec.structs.replace(total, cpu=whole.cpu or total.cpu, memory=whole.memory or total.memory)
    if spec.overhead:
        total = total.plus(amounts_of(spec.overhead, card_resources=card_resources))
    cards, share = total.asked.settled()
    return Request(
        cpu=MilliCpu(total.cpu),
        memory=Bytes(total.memory),
        cards=cards,
        share=share,
        extended=tuple(sorted((name, count) for name, count in total.extended.items() if count)),
        card_resource=total.asked.card_resource or DEFAULT_CARD,
        card_containers=tuple(
            (number, asked.cards or asked.count, asked.memory_mib, asked.core_percent)
            for number, container in enumerate(spec.containers)
            if (asked := one(container).asked).any
        )
        if total.asked.card_resource == VGPU_NUMBER and len(spec.containers) > 1
        else (),
    )
