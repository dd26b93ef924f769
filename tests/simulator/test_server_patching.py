"""The three patch formats."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.simulator.errors import ApiError
from muster.simulator.patching import json_patch, merge_patch, strategic_merge


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="a value is replaced"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null removes"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="objects merge"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="a list is replaced"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls inside a new object vanish"),
        pytest.param({"a": "c"}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="an object replaces a plain value"),
    ],
)
def test_merge_patch(target, patch, result):
    assert merge_patch(target, patch) == result


POD = {
    "metadata": {"labels": {"a": "1"}, "finalizers": ["x"], "ownerReferences": [{"uid": "u1", "name": "o"}]},
    "spec": {
        "containers": [
            {"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}]},
            {"name": "d", "image": "j"},
        ],
        "tolerations": [{"key": "a"}, {"key": "b"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Scheduled", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("patch", "path", "result"),
    [
        pytest.param(
            {"spec": {"containers": [{"name": "c", "image": "i:2"}]}},
            "spec.containers",
            [{"name": "c", "image": "i:2", "env": [{"name": "A", "value": "1"}]}, {"name": "d", "image": "j"}],
            id="containers merge by name",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}},
            "spec.containers.0.env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            id="env merges by name inside a merged container",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}},
            "spec.containers",
            [POD["spec"]["containers"][0]],
            id="$patch delete removes one element",
        ),
        pytest.param(
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "e", "image": "k"}]}},
            "spec.containers",
            [{"name": "e", "image": "k"}],
            id="$patch replace in a list replaces the list",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "z"}]}}, "spec.tolerations", [{"key": "z"}], id="tolerations are atomic"
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            "status.conditions",
            [{"type": "Ready", "status": "True"}, {"type": "Scheduled", "status": "True"}],
            id="conditions merge by type",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
            "spec.volumes",
            [{"name": "v", "hostPath": {"path": "/x"}}],
            id="$retainKeys drops the other volume source",
        ),
        pytest.param({"metadata": {"finalizers": ["y"]}}, "metadata.finalizers", ["x", "y"], id="finalizers are a set"),
        pytest.param(
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}},
            "metadata.finalizers",
            [],
            id="a finalizer is deleted",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{"uid": "u2", "name": "p"}]}},
            "metadata.ownerReferences",
            [{"uid": "u1", "name": "o"}, {"uid": "u2", "name": "p"}],
            id="owners merge by uid",
        ),
        pytest.param(
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "e"}, {"name": "d"}, {"name": "c"}],
                    "containers": [{"name": "e", "image": "k"}],
                }
            },
            "spec.containers",
            [{"name": "e", "image": "k"}, {"name": "d", "image": "j"}, POD["spec"]["containers"][0]],
            id="$setElementOrder orders the list",
        ),
        pytest.param(
            {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
            "metadata.labels",
            {"b": "2"},
            id="$patch replace on an object",
        ),
        pytest.param(
            {"metadata": {"labels": None}},
            "metadata",
            {k: v for k, v in POD["metadata"].items() if k != "labels"},
            id="null removes",
        ),
    ],
)
def test_strategic_merge(patch, path, result):
    before = copy.deepcopy(POD)
    found = strategic_merge(POD, patch)
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else found[step]
    assert found == result
    assert before == POD


def test_node_taints_are_atomic_as_in_the_kubernetes_types():
    node = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert strategic_merge(node, {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}})["spec"]["taints"] == [
        {"key": "b", "effect": "NoExecute"}
    ]


def test_ports_merge_by_the_key_of_their_kind():
    container = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "name": "http"}]}]}
    merged = strategic_merge(
        container, {"containers": [{"name": "c", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}
    )
    assert merged["containers"][0]["ports"] == [{"containerPort": 80, "name": "http", "protocol": "UDP"}]
    service = {"ports": [{"port": 80, "name": "http"}]}
    assert strategic_merge(service, {"ports": [{"port": 80, "targetPort": 8080}]})["ports"] == [
        {"port": 80, "name": "http", "targetPort": 8080}
    ]


DOCUMENT = {"a": {"b": [1, 2, 3]}, "x/y": 1, "~": 2}


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        pytest.param(
            [{"op": "add", "path": "/a/c", "value": 1}],
            {"a": {"b": [1, 2, 3], "c": 1}, "x/y": 1, "~": 2},
            id="add a member",
        ),
        pytest.param(
            [{"op": "add", "path": "/a/b/-", "value": 4}], {**DOCUMENT, "a": {"b": [1, 2, 3, 4]}}, id="append"
        ),
        pytest.param(
            [{"op": "add", "path": "/a/b/0", "value": 0}], {**DOCUMENT, "a": {"b": [0, 1, 2, 3]}}, id="insert"
        ),
        pytest.param([{"op": "remove", "path": "/x~1y"}], {"a": {"b": [1, 2, 3]}, "~": 2}, id="an escaped slash"),
        pytest.param([{"op": "replace", "path": "/~0", "value": 3}], {**DOCUMENT, "~": 3}, id="an escaped tilde"),
        pytest.param(
            [{"op": "move", "from": "/~0", "path": "/m"}], {"a": {"b": [1, 2, 3]}, "x/y": 1, "m": 2}, id="move"
        ),
        pytest.param([{"op": "copy", "from": "/a/b", "path": "/c"}], {**DOCUMENT, "c": [1, 2, 3]}, id="copy"),
        pytest.param([{"op": "test", "path": "/a/b/1", "value": 2}], DOCUMENT, id="a test that holds"),
    ],
)
def test_json_patch(operations, result):
    before = copy.deepcopy(DOCUMENT)
    assert json_patch(DOCUMENT, operations) == result
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a/b/1", "value": 9}, id="a test that fails"),
        pytest.param({"op": "remove", "path": "/none"}, id="removing what is not there"),
        pytest.param({"op": "replace", "path": "/none", "value": 1}, id="replacing what is not there"),
        pytest.param({"op": "add", "path": "/a/b/9", "value": 1}, id="an index past the end"),
        pytest.param({"op": "add", "path": "/none/x", "value": 1}, id="a parent that is not there"),
        pytest.param({"op": "fly", "path": "/a"}, id="an unknown operation"),
        pytest.param({"op": "add", "path": "a", "value": 1}, id="a path that is no pointer"),
    ],
)
def test_json_patch_refuses_with_422(operation):
    with pytest.raises(ApiError) as refusal:
        json_patch(DOCUMENT, [operation])
    assert refusal.value.code == 422


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "conditions"]), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON, max_size=3)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_idempotent_and_leaves_its_input_alone(target, patch):
    before = json.dumps([target, patch], sort_keys=True)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert json.dumps([target, patch], sort_keys=True) == before


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
)
def test_strategic_merge_of_named_lists_is_the_merge_of_the_maps_they_stand_for(first, second):
    def listed(values):
        return [{"name": name, "value": value} for name, value in values.items()]

    merged = strategic_merge({"env": listed(first)}, {"env": listed(second)})["env"]
    assert {entry["name"]: entry["value"] for entry in merged} == {**first, **second}
