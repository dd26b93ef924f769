"""Volcano's actions, plugins and their arguments, and what each is here: the tables of `muster.decide.volcano_conf`.

`SAME` is what Muster does anyhow, `DIFFERS` what it does otherwise or not at all; what stands in no table is not understood.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What becomes of one line."""

    TAKEN = "taken"
    """It changes the policy."""
    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "not understood"


class Told(NamedTuple):
    """What something is here."""

    outcome: Outcome
    message: str


SAME, DIFFERS = Outcome.SAME, Outcome.DIFFERS

ACTIONS: Mapping[str, Told] = {
    "enqueue": Told(SAME, "jobs wait in their queue and are looked at whole"),
    "allocate": Told(SAME, "jobs are started, whole or not at all"),
    "backfill": Told(SAME, "pods that ask nothing are placed, and other jobs use the room that is reserved for one that waits"),
    "preempt": Told(Outcome.TAKEN, "actions.preempt: act"),
    "reclaim": Told(Outcome.TAKEN, "actions.reclaim: act"),
    "gangpreempt": Told(Outcome.TAKEN, "actions.preempt: act; plans are always for whole jobs"),
    "gangreclaim": Told(Outcome.TAKEN, "actions.reclaim: act; plans are always for whole jobs"),
    "shuffle": Told(DIFFERS, "jobs are moved only by a plan that places every one of them again; actions.consolidate: act switches that on"),
    "reserve": Told(SAME, "room is reserved for jobs that wait, see waiting.reservations"),
    "elect": Told(SAME, "room is reserved for jobs that wait, see waiting.reservations"),
}  # fmt: skip

PLUGINS: Mapping[str, Told] = {
    "priority": Told(SAME, "jobs of a queue are ordered by their priority, then by waiting time"),
    "gang": Told(SAME, "a job starts with its minimum or not at all"),
    "conformance": Told(SAME, "pods of kube-system and of the system classes are never evicted"),
    "drf": Told(DIFFERS, "between queues the usage over the share decides; inside a queue priority and waiting time, not the dominant share of jobs"),
    "proportion": Told(DIFFERS, "shares follow weight here too; but spec.deserved, which proportion ignores, counts: see muster get queues"),
    "capacity": Told(SAME, "guarantee, deserved and capability of queues and of their parents count"),
    "overcommit": Told(DIFFERS, "nothing limits how many jobs may wait; only their pods' room is given out, and never twice"),
    "predicates": Told(SAME, "every node is judged as Kubernetes judges it"),
    "nodeorder": Told(DIFFERS, "nodes are filled rather than spread over; among nodes that are equal the preferred affinity of pods decides"),
    "binpack": Told(SAME, "nodes are filled; its weights become packing"),
    "resource-strategy-fit": Told(DIFFERS, "one weight for each of cpu, memory and cards: set packing"),
    "tdm": Told(DIFFERS, "nodes are not lent out by time of day"),
    "sla": Told(SAME, "a job that waited too long goes first and is reserved for"),
    "task-topology": Told(DIFFERS, "affinity between a job's tasks is asked for by pod affinity or by a topology of the job"),
    "numa-aware": Told(DIFFERS, "NUMA policies of tasks are not looked at; cards of one pod are kept in one link group"),
    "numaaware": Told(DIFFERS, "NUMA policies of tasks are not looked at; cards of one pod are kept in one link group"),
    "deviceshare": Told(SAME, "shared cards are found out for each node by its device plugin"),
    "cdp": Told(SAME, "volcano.sh/cooldown-time is kept, up to preemption.cooldown_max"),
    "rescheduling": Told(DIFFERS, "nodes are emptied only by a plan that places every job again; actions.consolidate: act switches that on"),
    "usage": Told(DIFFERS, "what nodes really use is not looked at; what pods ask decides"),
    "pdb": Told(SAME, "PodDisruptionBudgets are always kept"),
    "nodegroup": Told(DIFFERS, "queues are not bound to groups of nodes; use a nodeSelector of the pods"),
    "network-topology-aware": Told(SAME, "required topologies are kept and preferred ones sought"),
    "extender": Told(DIFFERS, "no other program is asked about nodes or jobs"),
    "resourcequota": Told(DIFFERS, "a ResourceQuota is applied by Kubernetes when pods are created; queues have their own capability"),
}  # fmt: skip

SWITCHES: Mapping[str, str] = {
    "enableJobOrder": "the order of jobs",
    "enableNamespaceOrder": "the order of namespaces",
    "enableHierarchy": "queues below queues",
    "enableJobReady": "the check that a job is complete",
    "enableJobPipelined": "the check that a job will be complete",
    "enableTaskOrder": "the order of a job's pods",
    "enablePreemptable": "who may be preempted",
    "enableReclaimable": "whom a queue's share may be taken back from",
    "enablePreemptive": "which queue may take back",
    "enableQueueOrder": "the order of queues",
    "enableVictimQueueOrder": "the order in which queues lose",
    "enableClusterOrder": "the order of clusters",
    "enablePredicate": "the judging of nodes",
    "enablePrePredicate": "the judging of nodes",
    "enableBestNode": "the choice of the best node",
    "enableNodeOrder": "the order of nodes",
    "enableHyperNodeOrder": "the order of topology domains",
    "enableTargetJob": "the choice of one job to reserve for",
    "enableReservedNodes": "reserved nodes",
    "enableJobEnqueued": "who may wait",
    "enableVictim": "the choice of victims",
    "enabledVictim": "the choice of victims",
    "enableJobStarving": "which job may preempt",
    "enableOverused": "which queue is over its share",
    "enabledOverused": "which queue is over its share",
    "enableAllocatable": "which queue may be given more",
    "enabledAllocatable": "which queue may be given more",
    "enableSubJobReady": "the check that a part of a job is complete",
    "enableSubJobPipelined": "the check that a part of a job will be complete",
    "enableSubJobOrder": "the order of a job's parts",
}
"""Switches of a plugin → what they switch."""

_NO_WEIGHT = "the weights of node scoring here are cpu, memory and gpu under packing"
_ALWAYS = "always on here"

ARGUMENTS: Mapping[str, Mapping[str, Told]] = {
    "nodeorder": {
        "nodeaffinity.weight": Told(DIFFERS, f"preferred node affinity decides between equal nodes; {_NO_WEIGHT}"),
        "podaffinity.weight": Told(DIFFERS, f"preferred pod affinity decides between equal nodes; {_NO_WEIGHT}"),
        "leastrequested.weight": Told(DIFFERS, f"nodes are filled, not spread over; {_NO_WEIGHT}"),
        "mostrequested.weight": Told(DIFFERS, f"nodes are always filled; {_NO_WEIGHT}"),
        "balancedresource.weight": Told(DIFFERS, f"cpu and memory are not balanced on a node; {_NO_WEIGHT}"),
        "tainttoleration.weight": Told(DIFFERS, f"taints with PreferNoSchedule have no weight; {_NO_WEIGHT}"),
        "imagelocality.weight": Told(DIFFERS, f"images on nodes are not looked at; {_NO_WEIGHT}"),
        "podtopologyspread.weight": Told(DIFFERS, f"spread constraints that say DoNotSchedule are kept, others have no weight; {_NO_WEIGHT}"),
        "selectorspread.weight": Told(DIFFERS, f"pods of a service are not spread; {_NO_WEIGHT}"),
        "volumebinding.weight": Told(DIFFERS, f"volumes restrict nodes and have no weight; {_NO_WEIGHT}"),
    },
    "deviceshare": {
        "deviceshare.GPUSharingEnable": Told(SAME, "shares of cards are given out where the node's device plugin does"),
        "deviceshare.GPUNumberEnable": Told(SAME, "whole cards are given out"),
        "deviceshare.VGPUEnable": Told(SAME, "shares of cards are given out where the node's device plugin does"),
        "deviceshare.NodeLockEnable": Told(SAME, "one pod at a time is handed its cards on a node"),
        "deviceshare.SchedulePolicy": Told(DIFFERS, "shares go to the fullest card that takes them (binpack)"),
        "deviceshare.ScheduleWeight": Told(DIFFERS, "the weight of cards is packing.gpu"),
        "deviceshare.KnownGeometriesCMName": Told(DIFFERS, "cards are not partitioned anew; MIG profiles are taken as nodes offer them"),
        "deviceshare.KnownGeometriesCMNamespace": Told(DIFFERS, "cards are not partitioned anew; MIG profiles are taken as nodes offer them"),
        "deviceshare.GPUExclusiveRules": Told(DIFFERS, "there are no rules that keep jobs off one another's cards; ask whole cards"),
        "deviceshare.AscendMindClusterVNPUEnable": Told(DIFFERS, "NPUs are resources like any other"),
        "deviceshare.AscendHAMiVNPUEnable": Told(DIFFERS, "NPUs are resources like any other"),
    },
    "predicates": {
        "predicate.NodeAffinityEnable": Told(SAME, _ALWAYS),
        "predicate.NodePortsEnable": Told(SAME, _ALWAYS),
        "predicate.TaintTolerationEnable": Told(SAME, _ALWAYS),
        "predicate.PodAffinityEnable": Told(SAME, _ALWAYS),
        "predicate.NodeVolumeLimitsEnable": Told(DIFFERS, "how many volumes a CSI driver attaches to a node is not looked at"),
        "predicate.VolumeZoneEnable": Told(SAME, _ALWAYS),
        "predicate.PodTopologySpreadEnable": Told(SAME, _ALWAYS),
        "predicate.VolumeBindingEnable": Told(SAME, _ALWAYS),
        "predicate.GPUSharingEnable": Told(SAME, "shares of cards are given out where the node's device plugin does"),
        "predicate.GPUNumberEnable": Told(SAME, "whole cards are given out"),
        "predicate.CacheEnable": Told(SAME, "pods that look alike are judged once"),
        "predicate.DynamicResourceAllocationEnable": Told(DIFFERS, "pods with resourceClaims wait as DRA_UNSUPPORTED"),
        "predicate.ProportionalEnable": Told(DIFFERS, "cpu and memory are not kept free beside idle cards"),
        "predicate.resources": Told(DIFFERS, "cpu and memory are not kept free beside idle cards"),
    },
    "network-topology-aware": {
        "weight": Told(DIFFERS, "a preferred topology counts before any packing; it has no weight"),
        "highPriorityIPScore": Told(DIFFERS, "addresses of nodes are not looked at"),
    },
    "overcommit": {
        "overcommit-factor": Told(DIFFERS, "nothing limits how many jobs may wait"),
        "max-queue-overcommit-factor": Told(DIFFERS, "nothing limits how many jobs may wait"),
    },
    "capacity": {
        "ancestorReclaimLevel": Told(DIFFERS, "every level of queues is looked at when a share is taken back"),
    },
    "usage": {
        "usage.weight": Told(DIFFERS, "what nodes really use is not looked at"),
        "cpu.weight": Told(DIFFERS, "what nodes really use is not looked at"),
        "memory.weight": Told(DIFFERS, "what nodes really use is not looked at"),
        "thresholds": Told(DIFFERS, "what nodes really use is not looked at"),
    },
    "tdm": {
        "tdm.evict.period": Told(DIFFERS, "nodes are not lent out by time of day"),
        "tdm.evict.max-num": Told(DIFFERS, "nodes are not lent out by time of day"),
    },
    "rescheduling": {
        "interval": Told(DIFFERS, "moves are looked for when something changes, not by a clock"),
        "metricsPeriod": Told(DIFFERS, "what nodes really use is not looked at"),
        "strategies": Told(DIFFERS, "nodes are emptied only by a plan that places every job again"),
        "queueSelector": Told(DIFFERS, "which queues take part is not chosen here"),
        "labelSelector": Told(DIFFERS, "which jobs take part is not chosen here"),
    },
    "resource-strategy-fit": {
        "resourceStrategyFitWeight": Told(DIFFERS, "set packing.weight"),
        "resources": Told(DIFFERS, "set packing.cpu, packing.memory and packing.gpu; cards are always filled"),
        "sra": Told(DIFFERS, "pods without cards are kept off nodes with cards only by taints"),
        "proportional": Told(DIFFERS, "cpu and memory are not kept free beside idle cards"),
    },
}  # fmt: skip
"""Arguments by plugin, other than those that become values of the policy."""

PREFIXES: Mapping[str, Mapping[str, Told]] = {
    "tdm": {"tdm.revocable-zone.": Told(DIFFERS, "nodes are not lent out by time of day")},
    "predicates": {"predicate.resources.": Told(DIFFERS, "cpu and memory are not kept free beside idle cards")},
    "extender": {"extender.": Told(DIFFERS, "no other program is asked about nodes or jobs")},
    "network-topology-aware": {"hypernode.": Told(DIFFERS, "a domain is chosen by what it holds and how tightly")},
    "task-topology": {
        "task-topology": Told(DIFFERS, "affinity between a job's tasks is asked for by pod affinity"),
    },
}
"""Beginnings of arguments that carry a name in them."""

ACTION_ARGUMENTS: Mapping[str, Mapping[str, Told]] = {
    "enqueue": {"overcommit-factor": Told(DIFFERS, "nothing limits how many jobs may wait")},
    "allocate": {
        "predicateErrorCacheEnable": Told(SAME, "pods that look alike are judged once"),
    },
    "backfill": {},
    "preempt": {
        "predicateErrorCacheEnable": Told(SAME, "pods that look alike are judged once"),
        "enableTopologyAwarePreemption": Told(SAME, "a plan is proven to fit, its topology included, before anybody leaves"),
        "topologyAwarePreemptWorkerNum": Told(SAME, "plans are sought over all nodes"),
        "minCandidateNodesPercentage": Told(SAME, "plans are sought over all nodes"),
        "minCandidateNodesAbsolute": Told(SAME, "plans are sought over all nodes"),
        "maxCandidateNodesAbsolute": Told(SAME, "plans are sought over all nodes"),
    },
    "reclaim": {"predicateErrorCacheEnable": Told(SAME, "pods that look alike are judged once")},
    "gangpreempt": {"maxDomains": Told(SAME, "plans are sought over all domains")},
    "gangreclaim": {"maxDomains": Told(SAME, "plans are sought over all domains")},
    "shuffle": {},
}  # fmt: skip
"""Arguments under configurations, by action."""
TOP = frozenset({"actions", "tiers", "configurations", "configs", "metricsConfiguration", "metrics"})
