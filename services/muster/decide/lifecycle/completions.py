"""Which pods of a Volcano Job have succeeded, remembered when the pods themselves are gone: they are not run again.

    a pod Succeeded ─► annotation muster.dev/succeeded of the job's PodGroup: ``3 worker:0-2,5 ps:1``
    gone since      ─► not made anew; counted as succeeded; the gang needs one pod less

The first number is the job's version: a restart of the whole job forgets everything. Tasks in partitions are left out: a
partition stands or falls as one.
"""

from collections.abc import Iterable, Mapping

import msgspec

from muster.decide.lifecycle.jobspec import JobSpec, pod_name
from muster.model.pods import Phase, Pod
from muster.model.quantity import whole_number
from muster.model.workloads import PodGroup, Workload

SUCCEEDED = "muster.dev/succeeded"


class Completions(msgspec.Struct, frozen=True):
    """Indexes of succeeded pods by task."""

    done: Mapping[str, frozenset[int]] = {}
    """Known to have succeeded, there or not."""
    vanished: Mapping[str, frozenset[int]] = {}
    """Those whose pod is gone."""

    def holds(self, task: str, index: int) -> bool:
        """Whether this pod has succeeded."""
        return index in self.done.get(task, frozenset())

    def gone(self, task: str) -> int:
        """How many succeeded pods of a task are gone."""
        return len(self.vanished.get(task, frozenset()))

    @property
    def all_gone(self) -> int:
        """How many succeeded pods of the job are gone."""
        return sum(len(indexes) for indexes in self.vanished.values())

    def without(self, task: str) -> "Completions":
        """The same, of a task that starts anew."""
        return Completions(
            {name: one for name, one in self.done.items() if name != task},
            {name: one for name, one in self.vanished.items() if name != task},
        )

    def text(self, version: int) -> str:
        """The annotation; '' for none."""
        parts = [f"{task}:{_ranges(indexes)}" for task, indexes in sorted(self.done.items()) if indexes]
        return " ".join([str(version), *parts]) if parts else ""


def completions_of(
    job: Workload, spec: JobSpec, own: Iterable[Pod], *, version: int, group: PodGroup | None, leaving: Iterable[str]
) -> Completions:
    """What is known now: from the PodGroup's annotation and from the pods.

    Args:
        job: the job.
        spec: its spec.
        own: its pods that belong to its present start.
        version: of that start.
        group: its PodGroup, if it exists.
        leaving: names of pods that a policy replaces: whatever they did, it is to be done again.
    """
    before = _parsed(group.annotations.get(SUCCEEDED, "") if group is not None else "", spec, version)
    there = {pod.name: pod for pod in own}
    again = set(leaving)
    done, vanished = {}, {}
    for task in spec.tasks:
        if task.partition_size:
            continue
        known, lost = set(), set()
        earlier = before.get(task.name, frozenset())
        for index in range(task.replicas) if earlier or there else ():
            name = pod_name(job.name, task.name, index)
            pod = there.get(name)
            if name in again or (pod is not None and pod.phase is not Phase.SUCCEEDED):
                continue
            if index in earlier or (pod is not None and not pod.terminating):  # one that leaves tells nothing new
                known.add(index)
            if pod is None and index in earlier:
                lost.add(index)
        if known:
            done[task.name] = frozenset(known)
        if lost:
            vanished[task.name] = frozenset(lost)
    return Completions(done, vanished)


def _parsed(text: str, spec: JobSpec, version: int) -> dict[str, frozenset[int]]:
    """The annotation's indexes, of tasks that there are and below their replicas; nothing of another version."""
    first, _, rest = text.partition(" ")
    if not first.isdecimal() or whole_number(first) != version:
        return {}
    replicas = {task.name: task.replicas for task in spec.tasks}
    found: dict[str, frozenset[int]] = {}
    for part in rest.split():
        task, _, ranges = part.partition(":")
        indexes: set[int] = set()
        for one in ranges.split(","):
            low, _, high = one.partition("-")
            if low.isdecimal() and (high or low).isdecimal():
                start, end = whole_number(low), whole_number(high or low)
                indexes.update(range(start, min(end + 1, replicas.get(task, 0))))
        if indexes:
            found[task] = frozenset(indexes)
    return found


def _ranges(indexes: Iterable[int]) -> str:
    """``0-2,5``."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
