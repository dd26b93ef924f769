import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.decoding import (
    KINDS,
    PODS,
    Bookmark,
    KindInfo,
    Malformed,
    RawObject,
    Removed,
    Upserted,
    decode_event,
    decode_object,
    decode_page,
    kind_info,
)
from muster.kube.errors import Gone, UnexpectedReply
from muster.kube.watching import LineSplitter

FULL_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train-0",
        "namespace": "team",
        "uid": "u1",
        "resourceVersion": "12",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:05:05Z",
        "deletionGracePeriodSeconds": 30,
        "labels": {"app": "train"},
        "annotations": {"scheduling.k8s.io/group-name": "train"},
        "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j", "apiVersion": "batch/v1", "controller": True}],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "nodeName": "n1",
        "schedulerName": "muster",
        "nodeSelector": {"zone": "a"},
        "priority": -5,
        "priorityClassName": "low",
        "preemptionPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "activeDeadlineSeconds": 3600,
        "hostNetwork": True,
        "overhead": {"cpu": "250m"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100"]}],
                            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 3, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
                ],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
                ]
            },
        },
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
        "initContainers": [{"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        "containers": [
            {
                "name": "main",
                "env": [{"name": "SECRET", "value": "x"}],
                "resources": {"requests": {"nvidia.com/gpu": "8", "cpu": 4}, "limits": {"nvidia.com/gpu": "8"}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}],
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "tmp", "emptyDir": {}},
        ],
        "schedulingGates": [{"name": "wait"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    },
    "status": {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "no room",
        "nominatedNodeName": "n2",
        "startTime": "2026-01-02T03:04:06Z",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastProbeTime": None}],
        "containerStatuses": [
            {"name": "main", "restartCount": 2, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        ],
    },
}


def encoded(document) -> bytes:
    return json.dumps(document).encode()


def test_everything_that_placement_needs_is_read_from_a_pod():
    pod = decode_object(PODS, encoded(FULL_POD))
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    assert metadata.key == "team/train-0"
    assert metadata.controller.name == "train"
    assert metadata.creation_timestamp.timestamp() == 1767323045
    assert metadata.deletion_grace_period_seconds == 30
    assert (spec.node_name, spec.scheduler_name, spec.priority, spec.preemption_policy) == ("n1", "muster", -5, "Never")
    required = spec.affinity.node_affinity.required.node_selector_terms[0]
    assert required.match_expressions[0].values == ("a100",)
    assert required.match_fields[0].key == "metadata.name"
    assert spec.affinity.node_affinity.preferred[0].weight == 3
    assert spec.affinity.pod_anti_affinity.required[0].label_selector.match_labels == {"app": "train"}
    assert spec.affinity.pod_affinity is None
    assert spec.tolerations[0].operator == "Exists"
    assert spec.topology_spread_constraints[0].max_skew == 2
    assert spec.init_containers[0].restart_policy == "Always"
    assert spec.containers[0].resources.requests == {"nvidia.com/gpu": "8", "cpu": 4}
    assert (spec.containers[0].ports[0].host_port, spec.containers[0].ports[0].host_ip) == (8080, "10.0.0.1")
    assert spec.volumes[0].persistent_volume_claim.claim_name == "data"
    assert [volume.ephemeral is not None for volume in spec.volumes] == [False, True, False]
    assert spec.scheduling_gates[0].name == "wait"
    assert spec.resource_claims[0].resource_claim_template_name == "t"
    assert (spec.termination_grace_period_seconds, spec.active_deadline_seconds) == (60, 3600)
    assert (status.phase, status.reason, status.nominated_node_name) == ("Failed", "OutOfcpu", "n2")
    assert status.container_statuses[0].state.terminated.exit_code == 137
    assert status.conditions[0].type == "PodScheduled"


def test_environment_values_are_not_kept():
    assert b"SECRET" not in msgspec.json.encode(decode_object(PODS, encoded(FULL_POD)))


def test_a_null_field_is_an_absent_field_at_any_depth():
    document = {
        "metadata": {"name": "a", "labels": None, "creationTimestamp": None},
        "spec": {"containers": None, "affinity": {"nodeAffinity": None}, "tolerations": [{"key": None}]},
        "status": None,
    }
    pod = decode_object(PODS, encoded(document))
    assert pod.metadata.labels == {}
    assert pod.spec.containers == ()
    assert pod.spec.tolerations[0].key == ""
    assert pod.status.phase == ""


def test_a_list_may_have_null_for_its_items():
    page = decode_page(PODS, b'{"metadata":{"resourceVersion":"7"},"items":null}')
    assert (page.items, page.resource_version, page.continue_token) == ([], "7", "")


def test_one_bad_object_does_not_hide_the_others_of_its_page():
    good = {"metadata": {"name": "good", "namespace": "x"}}
    bad = {"metadata": {"name": "bad", "namespace": "x", "resourceVersion": "3"}, "spec": {"priority": "high"}}
    unnamed = {"metadata": 7}
    page = decode_page(PODS, encoded({"metadata": {"resourceVersion": "9"}, "items": [bad, good, unnamed]}))
    assert [item.metadata.key for item in page.items] == ["x/good"]
    assert [(each.key, each.resource_version) for each in page.malformed] == [("x/bad", "3"), ("", "")]
    assert "$.spec.priority" in page.malformed[0].message


@pytest.mark.parametrize("content", [b"<html>proxy</html>", b'{"items": 7}', b"[]", b'{"items":[{"metada'])
def test_an_answer_that_is_no_list_is_an_error_not_an_empty_list(content):
    with pytest.raises(UnexpectedReply):
        decode_page(PODS, content)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param({"type": "ADDED", "object": FULL_POD}, Upserted, id="an added object"),
        pytest.param({"type": "MODIFIED", "object": FULL_POD}, Upserted, id="a modified object"),
        pytest.param({"type": "DELETED", "object": FULL_POD}, Removed, id="a deleted object with its last state"),
        pytest.param(
            {
                "type": "BOOKMARK",
                "object": {"kind": "Pod", "metadata": {"resourceVersion": "88"}, "spec": {"containers": None}},
            },
            Bookmark,
            id="a bookmark",
        ),
        pytest.param(
            {"type": "ADDED", "object": {"metadata": {"name": "b"}, "spec": {"priority": "x"}}},
            Malformed,
            id="an object that does not fit",
        ),
    ],
)
def test_watch_lines_become_events(line, expected):
    assert type(decode_event(PODS, encoded(line))) is expected


def test_a_bookmark_carries_its_version():
    line = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "88", "creationTimestamp": None}}}
    assert decode_event(PODS, encoded(line)) == Bookmark("88")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}', Gone, id="an expired watch"),
        pytest.param(b'{"type":"ERROR","object":"text"}', UnexpectedReply, id="an error without a status"),
        pytest.param(b'{"type":"NEWS","object":{}}', UnexpectedReply, id="an unknown type"),
        pytest.param(b"Internal Server Error", UnexpectedReply, id="text in the stream"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"na', UnexpectedReply, id="half a line"),
    ],
)
def test_watch_lines_that_are_no_events_raise(line, error):
    with pytest.raises(error):
        decode_event(PODS, line)


def test_volcano_objects_are_read_with_absent_and_present_told_apart():
    queue = decode_object(
        KINDS["queues.scheduling.volcano.sh"],
        encoded(
            {
                "metadata": {"name": "q"},
                "spec": {"capability": {"nvidia.com/gpu": 8}, "guarantee": {"resource": {"cpu": "1"}}},
            }
        ),
    )
    assert queue.spec.capability == {"nvidia.com/gpu": 8}
    assert queue.spec.deserved is None
    assert queue.spec.guarantee.resource == {"cpu": "1"}
    group = decode_object(
        KINDS["podgroups.scheduling.volcano.sh"],
        encoded(
            {
                "metadata": {"name": "g"},
                "spec": {"minMember": 4, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
            }
        ),
    )
    assert (group.spec.min_member, group.spec.network_topology.highest_tier_allowed) == (4, 1)
    command = decode_object(
        KINDS["commands.bus.volcano.sh"],
        encoded({"metadata": {"name": "c"}, "action": "AbortJob", "target": {"kind": "Job", "name": "j"}}),
    )
    assert (command.action, command.target.name) == ("AbortJob", "j")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("pods", "/api/v1/namespaces/ns/pods/n/binding"),
        ("nodes", "/api/v1/nodes/n/binding"),
        ("leases", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/n/binding"),
        ("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses/n/binding"),
        ("jobs.batch.volcano.sh", "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs/n/binding"),
        ("queues.scheduling.volcano.sh", "/apis/scheduling.volcano.sh/v1beta1/queues/n/binding"),
        ("leases.coordination.k8s.io", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/n/binding"),
    ],
)
def test_kinds_know_their_paths_by_short_and_full_name(name, path):
    assert kind_info(name).path("ns", "n", "binding") == path


def test_an_unknown_kind_is_named_together_with_the_known_ones():
    with pytest.raises(KeyError, match=r"podz.*pods"):
        kind_info("podz")


def test_a_kind_that_is_not_in_the_table_can_be_passed_as_it_is():
    info = KindInfo(
        name="rayclusters.ray.io",
        group="ray.io",
        version="v1",
        plural="rayclusters",
        kind="RayCluster",
        namespaced=True,
        struct=RawObject,
    )
    assert kind_info(info) is info
    assert info.custom
    assert decode_object(info, b'{"metadata":{"name":"r"},"spec":{"a":[1,null]}}').spec == {"a": [1, None]}


@given(st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"_"))), st.lists(st.integers(1, 30)))
def test_lines_survive_any_cut_into_chunks(lines, sizes):
    stream = b"".join(line + b"\n" for line in lines) + b"half a line"
    splitter = LineSplitter()
    received = []
    at = 0
    for size in [*sizes, len(stream)]:
        received += splitter.feed(stream[at : at + size])
        at += size
    assert received == [line for line in lines if line.strip()]
