"""PodGroups, queues, jobs, namespaces and priority classes."""

from collections.abc import Mapping
from typing import Any

from muster.decide.cards import NUMBER_NAMES, canonical
from muster.decide.projection.metadata import (
    controlling_owner,
    kept_annotations,
    label_selector,
    seconds,
    topology_wish,
)
from muster.decide.projection.requests import DEFAULT_CARD
from muster.model.quantity import to_bytes, to_milli_cpu, to_units
from muster.model.units import ONE_CARD, QueueName
from muster.model.workloads import (
    Limits,
    Namespace,
    PodGroup,
    PriorityClass,
    Queue,
    QueueState,
    SubGroup,
    Workload,
)

ANY_CARD = "gpu"
DEFAULT_QUEUE = QueueName("default")
STATES: Mapping[str, QueueState] = {state.value: state for state in QueueState}


def project_podgroup(raw: Any) -> PodGroup:
    """The model of a PodGroup whose spec and status are plain JSON."""
    metadata, spec = raw.metadata, raw.spec
    minimum = spec.get("minMember")
    return PodGroup(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        min_member=int(minimum) if minimum is not None else 1,
        min_task_member={str(name): int(count) for name, count in (spec.get("minTaskMember") or {}).items()},
        queue=QueueName(spec.get("queue") or DEFAULT_QUEUE),
        priority_class=spec.get("priorityClassName") or "",
        topology=topology_wish(spec.get("networkTopology"), metadata.annotations),
        sub_groups=tuple(_sub_group(item) for item in spec.get("subGroupPolicy") or ()),
        labels=dict(metadata.labels),
        annotations=kept_annotations(metadata.annotations),
        owner=controlling_owner(metadata),
        created=seconds(metadata.creation_timestamp),
        terminating=metadata.deletion_timestamp is not None,
        status=raw.status,
    )


def _sub_group(item: Mapping[str, Any]) -> SubGroup:
    return SubGroup(
        name=str(item.get("name") or ""),
        topology=topology_wish(item.get("networkTopology")),
        size=int(item.get("subGroupSize") or 1),
        minimum=int(item.get("minSubGroups") or 0),
        match_label_keys=tuple(item.get("matchLabelKeys") or ()),
        labels=label_selector(item.get("labelSelector")),
    )


def limits_of(named: Mapping[str, Any] | None, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Limits:
    """A queue's resource list: cpu in thousandths, memory in bytes, cards in millionths, the rest as counts."""
    amounts: dict[str, int] = {}
    for name, value in (named or {}).items():
        known = canonical(name, card_resources)
        if known == "cpu":
            amounts[known] = to_milli_cpu(value)
        elif known == "memory":
            amounts[known] = to_bytes(value)
        elif known.lower() == ANY_CARD or known in card_resources or known in NUMBER_NAMES:
            amounts[known.lower()] = to_units(value, ONE_CARD)
        else:
            amounts[known] = to_units(value)
    return Limits(amounts=amounts)


def with_all_cards(limits: Limits, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Limits:
    """What a queue is given, with `gpu` as the sum of the kinds of cards that it names where it names no `gpu` itself.

    An unnamed `gpu` would count as 0: a queue that deserves 8 ``nvidia.com/gpu`` would deserve no card at all.
    """
    kinds = {name.lower() for name in (*card_resources, *NUMBER_NAMES)}
    named = [amount for name, amount in limits.amounts.items() if name in kinds]
    if not named or ANY_CARD in limits.amounts:
        return limits
    return Limits(amounts={**limits.amounts, ANY_CARD: sum(named)})


def project_queue(raw: Any, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Queue:
    """The model of a Queue whose spec and status are plain JSON. Weight is 1 and reclaimable true unless said otherwise."""
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    state = status.get("state") or ""
    return Queue(
        name=QueueName(metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        parent=QueueName(spec["parent"]) if spec.get("parent") else None,
        weight=int(spec.get("weight") or 1),
        priority=int(spec.get("priority") or 0),
        reclaimable=spec.get("reclaimable") is not False,
        guarantee=with_all_cards(
            limits_of((spec.get("guarantee") or {}).get("resource"), card_resources=card_resources),
            card_resources=card_resources,
        ),
        deserved=with_all_cards(
            limits_of(spec.get("deserved"), card_resources=card_resources), card_resources=card_resources
        ),
        capability=limits_of(spec.get("capability"), card_resources=card_resources),
        state=STATES.get(state, QueueState.UNKNOWN) if state else QueueState.OPEN,
        annotations=kept_annotations(metadata.annotations),
        status=status,
    )


def project_workload(raw: Any, *, kind: str) -> Workload:
    """The model of a job (`kind`: ``vcjob`` or ``job``), its spec and status whole."""
    metadata = raw.metadata
    return Workload(
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation or 0,
        labels=dict(metadata.labels),
        annotations=kept_annotations(metadata.annotations),
        owner=controlling_owner(metadata),
        created=seconds(metadata.creation_timestamp),
        terminating=metadata.deletion_timestamp is not None,
        spec=raw.spec,
        status=raw.status,
    )


def project_namespace(raw: Any) -> Namespace:
    """The model of a Namespace."""
    return Namespace(
        name=raw.metadata.name,
        annotations=kept_annotations(raw.metadata.annotations),
        terminating=raw.metadata.deletion_timestamp is not None or raw.status.phase == "Terminating",
    )


def project_priority_class(raw: Any) -> PriorityClass:
    """The model of a PriorityClass."""
    return PriorityClass(
        name=raw.metadata.name,
        value=raw.value,
        global_default=raw.global_default,
        preemption_policy=raw.preemption_policy or "PreemptLowerPriority",
    )
