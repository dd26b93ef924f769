"""How fast lists and watch events of pods are decoded, and what they take in memory.

    python -m loadtest.decoder [--pods 10000] [--repeat 5] [--limit SECONDS] [--json FILE]

The pods are GPU pods as a cluster serves them, managedFields included (about 3.2 kB each), in pages of 500, through the
same functions the reflector uses. The best of the repetitions counts: the machine may be shared. The exit status is 1
when a full list takes longer than the limit.
"""

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.kube.decoding import PODS, decode_event, decode_page

PAGE = 500
_FIELDS = {
    "f:metadata": {
        "f:annotations": {".": {}, "f:scheduling.k8s.io/group-name": {}, "f:volcano.sh/task-spec": {}},
        "f:labels": {".": {}, "f:app": {}, "f:volcano.sh/job-name": {}, "f:volcano.sh/queue-name": {}},
        "f:ownerReferences": {".": {}, 'k:{"uid":"5f0e2d0c-7a57-4d4e-8d0b-3b1f3f0f8d11"}': {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"main"}': {
                ".": {},
                "f:command": {},
                "f:env": {".": {}, 'k:{"name":"MASTER_ADDR"}': {".": {}, "f:name": {}, "f:value": {}}},
                "f:image": {},
                "f:imagePullPolicy": {},
                "f:resources": {".": {}, "f:limits": {".": {}, "f:nvidia.com/gpu": {}}, "f:requests": {".": {}}},
                "f:terminationMessagePath": {},
                "f:terminationMessagePolicy": {},
                "f:volumeMounts": {".": {}, 'k:{"mountPath":"/data"}': {".": {}, "f:mountPath": {}, "f:name": {}}},
            }
        },
        "f:dnsPolicy": {},
        "f:enableServiceLinks": {},
        "f:nodeSelector": {},
        "f:priorityClassName": {},
        "f:restartPolicy": {},
        "f:schedulerName": {},
        "f:tolerations": {},
    },
}


def pod(number: int) -> dict[str, Any]:
    """One pod of a training gang of eight, as the API server serves it."""
    gang, member = divmod(number, 8)
    uid = f"{number:08x}-7a57-4d4e-8d0b-3b1f3f0f8d11"
    name = f"train-{gang}-worker-{member}"
    when = "2026-01-02T03:04:05Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{gang % 20}",
            "uid": uid,
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": when,
            "labels": {"app": "train", "volcano.sh/job-name": f"train-{gang}", "volcano.sh/queue-name": "research"},
            "annotations": {"scheduling.k8s.io/group-name": f"train-{gang}", "volcano.sh/task-spec": "worker"},
            "ownerReferences": [
                {
                    "apiVersion": "batch.volcano.sh/v1alpha1",
                    "kind": "Job",
                    "name": f"train-{gang}",
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": "muster-controller",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": when,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": _FIELDS,
                }
            ],
        },
        "spec": {
            "nodeName": f"gpu-{number % 1250}",
            "schedulerName": "muster",
            "priority": 1000,
            "priorityClassName": "research-high",
            "preemptionPolicy": "PreemptLowerPriority",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default",
            "nodeSelector": {"nvidia.com/gpu.product": "A100-SXM4-80GB"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "datasets", "readOnly": True}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/research/train:2026.01",
                    "command": ["torchrun", "--nnodes=8", "train.py", "--config", "configs/large.yaml"],
                    "env": [{"name": "MASTER_ADDR", "value": f"train-{gang}-worker-0"}],
                    "resources": {
                        "requests": {"cpu": "12", "memory": "120Gi", "nvidia.com/gpu": "1"},
                        "limits": {"cpu": "12", "memory": "120Gi", "nvidia.com/gpu": "1"},
                    },
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": when,
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "qosClass": "Guaranteed",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "image": "registry.example.com/research/train:2026.01",
                    "imageID": "registry.example.com/research/train@sha256:" + "0" * 64,
                    "containerID": "containerd://" + "1" * 64,
                    "state": {"running": {"startedAt": when}},
                    "lastState": {},
                }
            ],
        },
    }


def pages(count: int) -> list[bytes]:
    """A LIST of this many pods, in encoded pages."""
    encoded = []
    for start in range(0, count, PAGE):
        items = [pod(number) for number in range(start, min(start + PAGE, count))]
        encoded.append(json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode())
    return encoded


def best_of(repeat: int, work: Callable[[], object]) -> float:
    """Seconds of the quickest run."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(count: int, repeat: int) -> dict[str, Any]:
    """Time and memory of decoding `count` pods as a list and as watch events."""
    listed = pages(count)
    lines = [json.dumps({"type": "MODIFIED", "object": pod(number)}).encode() for number in range(min(count, 2000))]
    list_seconds = best_of(repeat, lambda: [decode_page(PODS, page) for page in listed])
    event_seconds = best_of(repeat, lambda: [decode_event(PODS, line) for line in lines])
    tracemalloc.start()
    kept = [decode_page(PODS, page) for page in listed]
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(page.items) for page in kept) == count
    return {
        "pods": count,
        "bytes_per_pod": round(sum(map(len, listed)) / count),
        "list_seconds": round(list_seconds, 4),
        "list_microseconds_per_pod": round(list_seconds / count * 1e6, 2),
        "event_microseconds_per_pod": round(event_seconds / len(lines) * 1e6, 2),
        "kept_bytes_per_pod": round(memory / count),
        "kept_mebibytes": round(memory / 2**20, 1),
    }


def main() -> int:
    """Measure, print as text and write JSON where asked; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Measure the decoding of pods.")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.0, help="most seconds a full list may take")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    arguments = parser.parse_args()
    if arguments.pods < 1 or arguments.repeat < 1:
        parser.error("--pods and --repeat: must be at least 1")
    result = measure(arguments.pods, arguments.repeat)
    result["limit_seconds"] = arguments.limit
    result["within_limit"] = result["list_seconds"] < arguments.limit
    for name, value in result.items():
        print(f"{name:28} {value}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result["within_limit"] else 1


if __name__ == "__main__":
    sys.exit(main())
