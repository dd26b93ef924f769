"""A cluster small enough to hold in one's head: it applies the actions of the lifecycle core as Kubernetes would."""

from typing import Any

import msgspec

from muster.decide.lifecycle.actions import PODGROUPS, PODS, VCJOBS, Action, Create, Patch, Remove
from muster.decide.lifecycle.vcjob import Surroundings, reconcile_vcjob
from muster.decide.projection import project_pod, project_podgroup, project_workload
from muster.kube.decoding import KINDS, RawObject
from muster.model.policy import Policy

POLICY = Policy()


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class World:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.version = 0
        self.now = 1_000_000.0
        self.conflicts = 0

    def put(self, kind: str, document: dict[str, Any]) -> None:
        self.version += 1
        metadata = document["metadata"]
        metadata = {"namespace": "default", **metadata, "resourceVersion": str(self.version)}
        metadata.setdefault("uid", f"uid-{self.version}")
        self.objects[kind, "default", metadata["name"]] = {**document, "metadata": metadata}

    def apply(self, action: Action) -> None:
        match action:
            case Create():
                if (action.kind, "default", action.name) not in self.objects:
                    document = action.document
                    if action.kind == PODS:
                        document = {**document, "status": {"phase": "Pending"}}
                    self.put(action.kind, document)
            case Patch():
                found = self.objects.get((action.kind, "default", action.name))
                if found is None:
                    return
                if action.resource_version not in {"", found["metadata"]["resourceVersion"]}:
                    self.conflicts += 1
                    return
                self.put(action.kind, merge(found, action.body))
            case Remove():
                found = self.objects.get((action.kind, "default", action.name))
                if found is not None and found["metadata"]["uid"] == action.uid:
                    del self.objects[action.kind, "default", action.name]

    def job(self, name: str) -> Any:
        found = self.objects.get((VCJOBS, "default", name))
        return None if found is None else project_workload(msgspec.convert(found, RawObject), kind="vcjob")

    def pods(self) -> list[Any]:
        struct = KINDS["pods"].struct
        return [project_pod(msgspec.convert(d, struct)) for (kind, _, _), d in self.objects.items() if kind == PODS]

    def group(self) -> Any:
        found = [d for (kind, _, _), d in self.objects.items() if kind == PODGROUPS]
        return project_podgroup(msgspec.convert(found[0], RawObject)) if found else None

    def set_pod(self, name: str, phase: str, **status: Any) -> None:
        found = self.objects.get((PODS, "default", name))
        if found is not None and found["status"]["phase"] not in {"Succeeded", "Failed"}:
            spec = {**found["spec"], "nodeName": "node-1"}
            self.put(PODS, {**found, "spec": spec, "status": {"phase": phase, **status}})

    def remove_pod(self, name: str) -> None:
        self.objects.pop((PODS, "default", name), None)

    def actions(self, name: str = "job", **around: Any) -> tuple[Action, ...]:
        job = self.job(name)
        if job is None:
            return ()
        return reconcile_vcjob(
            job, self.pods(), Surroundings(policy=POLICY, now=self.now, podgroup=self.group(), **around)
        )

    def settle(self, name: str = "job") -> int:
        """Apply until nothing is asked for; how many rounds that took."""
        for rounds in range(40):
            before = self.version, len(self.objects)
            for action in self.actions(name):
                self.apply(action)
            if (self.version, len(self.objects)) == before:
                return rounds
        raise AssertionError("it does not settle")

    def phase(self, name: str = "job") -> str:
        return str((self.job(name).status.get("state") or {}).get("phase"))

    def picture(self) -> dict[str, Any]:
        """What stands there, without versions and times."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {
                    k: plain(v) for k, v in value.items() if k not in {"resourceVersion", "uid", "lastTransitionTime"}
                }
            if isinstance(value, list):
                return [plain(item) for item in value]
            return value

        return {f"{kind}/{name}": plain(d) for (kind, _, name), d in sorted(self.objects.items())}


def job_document(*, replicas: int = 3, tasks: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
    tasks = tasks or [{"name": "worker", "replicas": replicas, "template": template}]
    for task in tasks:
        task.setdefault("template", template)
    return {
        "metadata": {"name": "job", "uid": "uid-job"},
        "spec": {"schedulerName": "volcano", "tasks": tasks, **spec},
        "status": {},
    }
