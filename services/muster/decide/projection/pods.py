"""A pod: where it stands and the shape that placement looks at."""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.decide.assignment import cards_from_annotations
from muster.decide.cards import VISIBLE_DEVICES
from muster.decide.projection.metadata import FENCE, controlling_owner, kept_annotations, seconds
from muster.decide.projection.requests import DEFAULT_CARD, pod_request
from muster.decide.reservations import SCHEDULER_NAME
from muster.model.pods import (
    UNKNOWN_NAMESPACES,
    CardUse,
    NodeTerm,
    Phase,
    Pod,
    PodTerm,
    Request,
    Requirement,
    Shape,
    SpreadConstraint,
    Toleration,
)
from muster.model.quantity import whole_number
from muster.model.units import GangKey, NodeName, PodUid, RoleName, gang_key

GROUP_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
TASK_SPEC = "volcano.sh/task-spec"
USE_MODELS, REFUSE_MODELS = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
ALL_NAMESPACES = ("*",)
PHASES: Mapping[str, Phase] = {phase.value: phase for phase in Phase}


def project_pod(raw: Any, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Pod:
    """The model of a decoded Pod."""
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    annotations = kept_annotations(metadata.annotations) if metadata.annotations else {}
    shape = pod_shape(metadata, spec, card_resources=card_resources)
    reason, message = _not_scheduled(status.conditions)
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=PodUid(metadata.uid),
        resource_version=metadata.resource_version,
        scheduler_name=spec.scheduler_name,
        gang=_gang(metadata.namespace, annotations, metadata.labels),
        role=RoleName(annotations.get(TASK_SPEC, "")),
        shape=shape,
        node=NodeName(spec.node_name) if spec.node_name else None,
        nominated_node=NodeName(status.nominated_node_name) if status.nominated_node_name else None,
        phase=PHASES.get(status.phase or "Pending", Phase.UNKNOWN),
        reason=status.reason,
        message=status.message,
        exit_code=_exit_code(status),
        terminating=metadata.deletion_timestamp is not None,
        deletion_time=seconds(metadata.deletion_timestamp) if metadata.deletion_timestamp is not None else None,
        gated=bool(spec.scheduling_gates),
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions),
        priority=spec.priority or 0,
        priority_class=spec.priority_class_name,
        preemption_policy=spec.preemption_policy or "PreemptLowerPriority",
        cards=_cards(annotations, shape.request, reserves=spec.scheduler_name == SCHEDULER_NAME),
        fence=whole_number(annotations.get(FENCE)),
        labels=metadata.labels,
        annotations=annotations,
        owner=controlling_owner(metadata),
        created=seconds(metadata.creation_timestamp),
        started=seconds(status.start_time) if status.start_time is not None else None,
        unschedulable_reason=reason,
        unschedulable_message=message,
        devices=_devices(status.container_statuses),
        active_deadline=float(spec.active_deadline_seconds or 0),
    )


def pod_shape(metadata: Any, spec: Any, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Shape:
    """The part of a pod that placement looks at; equal shapes are one class."""
    affinity = spec.affinity
    nodes = affinity.node_affinity if affinity is not None else None
    claims = [volume.persistent_volume_claim.claim_name for volume in spec.volumes if volume.persistent_volume_claim]
    claims += [f"{metadata.name}-{volume.name}" for volume in spec.volumes if volume.ephemeral is not None]
    return Shape(
        request=pod_request(spec, card_resources=card_resources),
        node_selector=tuple(sorted(spec.node_selector.items())),
        required_nodes=tuple(_node_term(term) for term in nodes.required.node_selector_terms)
        if nodes is not None and nodes.required is not None
        else (),
        preferred_nodes=tuple(_node_term(item.preference, weight=item.weight) for item in nodes.preferred)
        if nodes is not None
        else (),
        tolerations=tuple(
            Toleration(key=item.key, operator=item.operator or "Equal", value=item.value, effect=item.effect)
            for item in spec.tolerations
        ),
        pod_terms=tuple(_pod_terms(metadata, affinity)) if affinity is not None else (),
        spread=tuple(_spread(metadata, item) for item in spec.topology_spread_constraints),
        host_ports=tuple(
            sorted(
                (port.protocol or "TCP", port.host_port, port.host_ip)
                for container in spec.containers
                for port in container.ports
                if port.host_port
            )
        ),
        claims=tuple(sorted(claims)),
        resource_claims=bool(spec.resource_claims),
        takes_visible_devices=VISIBLE_DEVICES in metadata.annotations,
        gpu_models=_names(metadata.annotations, USE_MODELS),
        refused_gpu_models=_names(metadata.annotations, REFUSE_MODELS),
    )


def _names(annotations: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A comma-separated annotation, upper case, sorted."""
    return tuple(sorted({part.strip().upper() for part in annotations.get(name, "").split(",") if part.strip()}))


def _devices(containers: Iterable[Any]) -> tuple[str, ...]:
    return tuple(
        sorted(
            device.resource_id
            for container in containers
            for resource in container.allocated_resources_status
            for device in resource.resources
        )
    )


def _gang(namespace: str, annotations: Mapping[str, str], labels: Mapping[str, str]) -> GangKey | None:
    """The PodGroup that the pod names: by annotation, as Volcano has it, else by label, as Kubeflow's trainer writes it."""
    for marks in (annotations, labels):
        for name in GROUP_NAMES:
            if marks.get(name):
                return gang_key(namespace, marks[name])
    return None


def _cards(annotations: Mapping[str, str], request: Request, *, reserves: bool) -> tuple[CardUse, ...]:
    """What stands on the pod where only Muster writes, if it is what the pod asks; else cards nobody knows, as of a foreign pod.

    An owner who writes there himself claims neither more cards than he asks nor less of one. A reservation pod has its card
    whole and leaves it to others (`reserves`).
    """
    try:
        cards = cards_from_annotations(annotations, request)
    except ValueError:
        return ()
    if reserves:
        return cards
    share = request.share
    number = request.cards if share is None else share.count
    if len(cards) != number or len({use.index for use in cards}) != number or any(use.index < 0 for use in cards):
        return ()
    if any(use.whole is not (share is None) for use in cards):
        return ()
    if share is None:
        return cards
    return tuple(
        CardUse(index=use.index, memory_mib=share.memory_mib, core_percent=share.core_percent) for use in cards
    )


def _exit_code(status: Any) -> int | None:
    for container in (*status.init_container_statuses, *status.container_statuses):
        ended = container.state.terminated
        if ended is not None and ended.exit_code != 0:
            return int(ended.exit_code)
    return None


def _not_scheduled(conditions: Iterable[Any]) -> tuple[str, str]:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""


def _requirements(items: Iterable[Any]) -> tuple[Requirement, ...]:
    return tuple(
        sorted(
            (Requirement(key=item.key, operator=item.operator, values=tuple(sorted(item.values))) for item in items),
            key=lambda requirement: (requirement.key, requirement.operator, requirement.values),
        )
    )


def _node_term(term: Any, *, weight: int = 0) -> NodeTerm:
    return NodeTerm(
        labels=_requirements(term.match_expressions), fields=_requirements(term.match_fields), weight=weight
    )


def _selector(
    selector: Any, metadata: Any, keys: Iterable[str] = (), mismatched: Iterable[str] = ()
) -> tuple[Requirement, ...]:
    if selector is None:
        # An absent selector matches no pod; Kubernetes words that as an empty In.
        return (Requirement(key="", operator="In"),)
    found = [Requirement(key=key, operator="In", values=(value,)) for key, value in selector.match_labels.items()]
    found += _requirements(selector.match_expressions)
    for operator, names in (("In", keys), ("NotIn", mismatched)):
        found += [
            Requirement(key=key, operator=operator, values=(metadata.labels[key],))
            for key in names
            if key in metadata.labels
        ]
    return tuple(sorted(found, key=lambda requirement: (requirement.key, requirement.operator, requirement.values)))


def _pod_term(term: Any, metadata: Any, *, anti: bool, weight: int = 0) -> PodTerm:
    namespaces = tuple(sorted(term.namespaces))
    chosen = term.namespace_selector
    if chosen is not None:
        everywhere = not chosen.match_labels and not chosen.match_expressions
        # Namespace labels are not in the model: keep away from all namespaces; company in some of them cannot be told.
        namespaces = ALL_NAMESPACES if everywhere or anti else UNKNOWN_NAMESPACES
    return PodTerm(
        topology_key=term.topology_key,
        labels=_selector(term.label_selector, metadata, term.match_label_keys, term.mismatch_label_keys),
        namespaces=namespaces,
        anti=anti,
        weight=weight,
    )


def _pod_terms(metadata: Any, affinity: Any) -> Iterable[PodTerm]:
    for side, anti in ((affinity.pod_affinity, False), (affinity.pod_anti_affinity, True)):
        if side is None:
            continue
        for term in side.required:
            yield _pod_term(term, metadata, anti=anti)
        for weighted in side.preferred:
            yield _pod_term(weighted.pod_affinity_term, metadata, anti=anti, weight=weighted.weight)


def _spread(metadata: Any, item: Any) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=item.topology_key,
        max_skew=item.max_skew,
        required=(item.when_unsatisfiable or "DoNotSchedule") == "DoNotSchedule",
        labels=_selector(item.label_selector, metadata, item.match_label_keys),
        min_domains=item.min_domains or 1,
    )
