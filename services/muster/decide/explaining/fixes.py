"""What would cure a wait, from its code and the numbers that decided: the same words in the CLI, conditions and Events.

Nothing is said of a wait that ends by itself, when others end or pods that are being made exist.
"""

from collections.abc import Mapping

from muster.decide.reasons import Reason, count, format_amount

Numbers = Mapping[str, int | float | str]

SAYS: Mapping[str, str] = {
    Reason.QUEUE_CLOSED: "have queue {queue} opened, or name another queue",
    Reason.SHARING_NOT_AVAILABLE: "ask for whole cards, or have a device plugin installed that gives out shares",
    Reason.NO_PODGROUP: "create that PodGroup, or correct the pods' annotation scheduling.k8s.io/group-name",
    Reason.CLAIM_MISSING: "create the PersistentVolumeClaim, or correct the name in the pods' volumes",
    Reason.CLAIM_UNBOUND: "look at the claim (kubectl describe pvc): its storage class, size and volume decide",
    Reason.VOLUME_UNSUPPORTED: "use volumes that all nodes reach, or give pods with volumes elsewhere a task of their own",
    Reason.UNIT_TRAP: "state the memory of a card in MiB",
    Reason.DRA_UNSUPPORTED: "ask for cards by nvidia.com/gpu or a share instead of resourceClaims",
    Reason.POD_AFFINITY_UNSUPPORTED: "name the namespaces of the pod affinity instead of choosing them by labels",
    Reason.SUB_GROUP_UNSUPPORTED: "make one group of each role",
    Reason.PRIORITY_CLASS_MISSING: "create the PriorityClass {class}, or name another one in the PodGroup",
    Reason.NAMESPACE_NOT_ALLOWED: "submit from a namespace that the queue takes, or have the policy's rules of it changed",
    Reason.PRIORITY_NOT_ALLOWED: "use a priority class that the queue takes, or have the policy's rules of it changed",
    Reason.FENCE_FORGED: "delete the pod, and take the annotation muster.dev/fence out of the template that it is made from",
    Reason.NO_NODES: "wait for a node, or look why none is ready (kubectl get nodes)",
}


def fixes_of(code: str, numbers: Numbers) -> tuple[str, ...]:
    """Each a sentence of its own; () when there is nothing to do but wait."""
    match code:
        case Reason.QUEUE_UNKNOWN:
            meant = numbers.get("meant")
            return (
                f"name queue {meant}" if meant else f"create queue {numbers.get('queue', '')}, or name another one",
            )
        case Reason.QUEUE_CAPABILITY:
            return _capability(numbers)
        case Reason.TOPOLOGY_LEVEL_UNKNOWN:
            levels = numbers.get("levels")
            return (f"ask for one of: {levels}" if levels else "ask for no topology level: nodes here carry none",)
        case Reason.NEVER_FITS:
            return _never(numbers)
        case Reason.NO_MATCHING_NODE:
            return _no_node(numbers)
        case Reason.TOO_FEW_PODS:
            return _too_few(numbers)
        case _:
            says = SAYS.get(code, "")
            try:
                return (says.format(**{name: str(value) for name, value in numbers.items()}),) if says else ()
            except KeyError:  # a hold without numbers: its message names the thing
                return (says.replace(" {queue}", "").replace(" {class}", ""),)


def _capability(numbers: Numbers) -> tuple[str, ...]:
    cap, asked, used = (numbers.get(name) for name in ("capability", "asked", "used"))
    if not (isinstance(cap, int) and isinstance(asked, int)):
        return ()
    most, queue = format_amount(str(numbers["resource"]), cap), numbers["queue"]
    if asked > cap:
        return (f"ask for at most {most}, or have the cap raised (muster get queue {queue})",)
    if isinstance(used, int):
        return (f"wait until jobs of queue {queue} end, ask for less, or have its cap of {most} raised",)
    return ()


def _never(numbers: Numbers) -> tuple[str, ...]:
    possible, asked = numbers.get("possible"), numbers.get("asked")
    if "resource" in numbers:
        return (f"correct the name {numbers['resource']}, or add nodes that have it",)
    if "level" in numbers:
        most = numbers.get("best_fits")
        return (f"ask for at most {most} pods in one {numbers['level']}, or for a wider level",)
    if isinstance(possible, int) and possible:
        return (f"let at most {count(possible, 'pod')} start together",)
    if isinstance(asked, int):
        return ("ask for less in one pod: no node is as large",)
    return ()


def _no_node(numbers: Numbers) -> tuple[str, ...]:
    if isinstance(numbers.get("selector"), str):
        there = f" (there are {numbers['labels']})" if numbers.get("labels") else ""
        return (f"correct the nodeSelector {numbers['selector']}{there}, or label nodes so",)
    cures = {
        "selector": "relax the nodeSelector",
        "affinity": "relax the node affinity",
        "taints": "tolerate the taints",
        "unschedulable": "uncordon nodes",
        "card_kind": "ask for cards that there are (muster get nodes)",
        "volumes": "use volumes that nodes with room can reach",
    }
    if numbers.get("withheld"):
        return ("wait a moment: idle nodes come back for it",)
    found = [text for name, text in cures.items() if numbers.get(name)]
    return (", or ".join(found),) if found else ()


def _too_few(numbers: Numbers) -> tuple[str, ...]:
    gated = numbers.get("gated")
    if isinstance(gated, int) and gated:
        return (f"remove the scheduling gates of {count(gated, 'pod')}",)
    missing, minimum = numbers.get("missing"), numbers.get("minimum")
    if isinstance(missing, int) and isinstance(minimum, int):
        return (f"create {count(missing, 'pod')} more, or lower the minimum of {minimum}",)
    return ()
