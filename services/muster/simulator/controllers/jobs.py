"""The batch/v1 Job controller: carries out what `job_decision` decides."""

from collections.abc import Mapping
from typing import Any

from muster.simulator.controllers.job_counting import INDEX_ANNOTATION, JobMemory
from muster.simulator.controllers.job_decision import JobDecision, decide_job
from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.errors import ApiError
from muster.simulator.recorder import Recorder
from muster.simulator.store import Store, private_copy
from muster.simulator.timers import Timers

Object = dict[str, Any]
JOBS = "jobs.batch"
RETRY_SECONDS = 10.0
NOT_SIMULATED = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")


class JobController:
    """Follows Jobs and the pods they control."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._recorder = Recorder(store, "job-controller")
        self._memory: dict[str, JobMemory] = {}
        self._pods: dict[str, dict[str, tuple[str, str]]] = {}
        self._jobs: dict[str, tuple[str, str]] = {}
        self._refused_until: dict[str, float] = {}
        self._queue = WorkQueue[str](timers, self._sync)
        store.subscribe(JOBS, self._on_job)
        store.subscribe("pods", self._on_pod)
        for job in store.list(JOBS):
            self._on_job("ADDED", job, None)
        for pod in store.list("pods"):
            self._on_pod("ADDED", pod, None)

    def _on_job(self, event: str, job: Object, old: Object | None) -> None:
        metadata = job["metadata"]
        uid = metadata["uid"]
        if event == "DELETED":
            for forgotten in (self._memory, self._pods, self._jobs, self._refused_until):
                forgotten.pop(uid, None)
            self._queue.forget(uid)
            return
        if job["spec"].get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
            return
        if old is None:
            named = [name for name in NOT_SIMULATED if name in job["spec"]]
            if named:
                self._recorder.warning(
                    job, "NotSimulated", message=f"spec.{', spec.'.join(named)}: not obeyed by the simulated controller"
                )
        self._jobs[uid] = (metadata["namespace"], metadata["name"])
        self._queue.add(uid)

    def _on_pod(self, event: str, pod: Object, old: Object | None) -> None:
        owner = _controller(pod)
        if owner is None or owner["kind"] != "Job" or not owner["apiVersion"].startswith("batch/"):
            return
        metadata, uid = pod["metadata"], owner["uid"]
        pods = self._pods.setdefault(uid, {})
        if event == "DELETED":
            pods.pop(metadata["uid"], None)
            # The last sight of the pod: it may have ended, or been deleted, since the Job was looked at.
            if uid in self._jobs:
                self._remember(uid, pod)
        else:
            pods[metadata["uid"]] = (metadata["namespace"], metadata["name"])
        if uid in self._jobs and (old is None or event == "DELETED" or _matters(pod, old)):
            self._queue.add(uid)

    def _remember(self, uid: str, pod: Object) -> None:
        job = self._job(uid)
        if job is None:
            return
        last = {
            **pod,
            "metadata": {**pod["metadata"], "deletionTimestamp": pod["metadata"].get("deletionTimestamp", "")},
        }
        _, self._memory[uid] = decide_job(job, [last], self._memory.get(uid, JobMemory()), now=self._store.clock.now())

    def _job(self, uid: str) -> Object | None:
        where = self._jobs.get(uid)
        job = self._store.find(JOBS, *where) if where is not None else None
        return job if job is not None and job["metadata"]["uid"] == uid else None

    def _sync(self, uid: str) -> None:
        job = self._job(uid)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        pods = [
            pod
            for pod_uid, where in self._pods.get(uid, {}).items()
            if (pod := self._store.find("pods", *where)) is not None and pod["metadata"]["uid"] == pod_uid
        ]
        memory = self._memory.get(uid, JobMemory())
        decision, self._memory[uid] = decide_job(job, pods, memory, now=self._store.clock.now())
        self._carry_out(job, decision)

    def _carry_out(self, job: Object, decision: JobDecision) -> None:
        metadata = job["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        if decision.remove_job:
            self._store.delete(JOBS, namespace, name, propagation="Foreground", preconditions={"uid": uid})
            return
        for pod in decision.delete:
            try:
                self._store.delete("pods", namespace, pod)
            except ApiError as error:
                if error.code != 404:
                    raise
        failed = self._make(job, decision.create)
        if decision.status:
            status = {**decision.status, "active": decision.status["active"] - failed}
            current = self._store.find(JOBS, namespace, name)
            if current is not None and current["metadata"]["uid"] == uid:
                self._store.patch(JOBS, namespace, name, {"status": status}, subresource="status")
        if decision.recheck_after is not None and not failed:
            self._queue.add_after(uid, decision.recheck_after)

    def _make(self, job: Object, indexes: tuple[int | None, ...]) -> int:
        """Create pods; how many of them were not made, because the server refuses them or refused the last ones just now."""
        uid, now = job["metadata"]["uid"], self._store.clock.now()
        if now < self._refused_until.get(uid, now):
            return len(indexes)
        for number, index in enumerate(indexes):
            try:
                self._store.create("pods", pod_of(job, index), namespace=job["metadata"]["namespace"])
            except ApiError as error:
                # As the real controller: say why, and try again later; the next pod would fare no better.
                self._recorder.warning(job, "FailedCreate", message=f"Error creating: {error.message}")
                self._refused_until[uid] = now + RETRY_SECONDS
                self._queue.add_after(uid, RETRY_SECONDS)
                return len(indexes) - number
        self._refused_until.pop(uid, None)
        return 0


def pod_of(job: Mapping[str, Any], index: int | None) -> Object:
    """The pod a Job makes from its template, for one index when it is indexed."""
    metadata = job["metadata"]
    template = private_copy(job["spec"]["template"])
    spec, wanted = template["spec"], template.get("metadata") or {}
    labels, annotations = dict(wanted.get("labels") or {}), dict(wanted.get("annotations") or {})
    prefix = f"{metadata['name']}-"
    if index is not None:
        labels[INDEX_ANNOTATION] = annotations[INDEX_ANNOTATION] = str(index)
        prefix = f"{metadata['name']}-{index}-"
        spec.setdefault("hostname", f"{metadata['name']}-{index}")
        for container in (*spec["containers"], *(spec.get("initContainers") or ())):
            variables = container.setdefault("env", [])
            if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in variables):
                source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_ANNOTATION}']"}}
                variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod_metadata: Object = {"generateName": prefix, "labels": labels, "ownerReferences": [owner]}
    if annotations:
        pod_metadata["annotations"] = annotations
    if wanted.get("finalizers"):
        pod_metadata["finalizers"] = wanted["finalizers"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": spec}


def _controller(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _matters(pod: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether anything a Job looks at changed: phase, readiness, restarts, deletion."""

    def seen(each: Mapping[str, Any]) -> tuple[Any, ...]:
        status = each.get("status") or {}
        return (
            status.get("phase"),
            [c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"],
            [c.get("restartCount") for c in status.get("containerStatuses") or ()],
            each["metadata"].get("deletionTimestamp"),
        )

    return seen(pod) != seen(old)
