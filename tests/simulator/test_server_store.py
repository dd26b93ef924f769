"""The store itself: versions, optimistic concurrency, deletion, subscribers, immutability."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.simulator.clock import VirtualClock, parse_timestamp
from muster.simulator.store import ApiError, Store
from tests.simulator.http_api import CRDS, definition, pod


@pytest.fixture
def store() -> Store:
    return Store(VirtualClock(), seed=7)


def refused(code: int, reason: str):
    return pytest.raises(ApiError, check=lambda error: (error.code, error.reason) == (code, reason))


def test_a_created_object_has_uid_version_and_creation_time(store):
    made = store.create("pods", pod("web"))
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"]) == store.version
    assert (made["apiVersion"], made["kind"]) == ("v1", "Pod")


def test_versions_come_from_one_counter_over_all_resources(store):
    first = store.create("pods", pod("a"))
    second = store.create("nodes", {"metadata": {"name": "n"}})
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1


def test_the_same_seed_gives_the_same_names_and_uids():
    made = [
        Store(VirtualClock(), seed=3).create("pods", {**pod("x"), "metadata": {"generateName": "w-"}}) for _ in range(2)
    ]
    assert made[0]["metadata"]["name"] == made[1]["metadata"]["name"]
    assert made[0]["metadata"]["name"].startswith("w-")
    assert len(made[0]["metadata"]["name"]) == len("w-") + 5
    assert made[0]["metadata"]["uid"] == made[1]["metadata"]["uid"]


@pytest.mark.parametrize(
    ("resource", "obj", "code", "reason"),
    [
        pytest.param("pods", pod("web"), 409, "AlreadyExists", id="a name in use"),
        pytest.param(
            "pods",
            {**pod("a"), "metadata": {"name": "a", "namespace": "none"}},
            404,
            "NotFound",
            id="a namespace that does not exist",
        ),
        pytest.param("pods", {"spec": pod("a")["spec"]}, 422, "Invalid", id="no name at all"),
        pytest.param("pods", pod("Not_A_Name"), 422, "Invalid", id="a name that is no DNS subdomain"),
    ],
)
def test_create_refuses(store, resource, obj, code, reason):
    store.create("pods", pod("web"))
    with refused(code, reason):
        store.create(resource, obj)


def test_an_update_with_a_stale_version_or_another_uid_conflicts(store):
    made = store.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    store.update("configmaps", {**made, "data": {"a": "2"}})
    with refused(409, "Conflict"):
        store.update("configmaps", {**made, "data": {"a": "3"}})
    stranger = {**made, "metadata": {**made["metadata"], "uid": "other", "resourceVersion": ""}}
    with refused(409, "Conflict"):
        store.update("configmaps", stranger)
    assert store.get("configmaps", "default", "c")["data"] == {"a": "2"}


def test_a_write_that_changes_nothing_is_no_write(store):
    made = store.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    seen = []
    store.subscribe("configmaps", lambda *event: seen.append(event))
    again = store.update("configmaps", made)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert store.patch("configmaps", "default", "c", {"data": {"a": "1"}}) == made
    assert seen == []


def test_a_dry_run_changes_nothing(store):
    version = store.version
    made = store.create("pods", pod("web"), dry_run=True)
    assert made["metadata"]["uid"]
    assert store.find("pods", "default", "web") is None
    assert store.version == version


def test_status_and_spec_are_written_apart(store):
    made = store.create("pods", {**pod("web"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    updated = store.update(
        "pods", {**made, "status": {"phase": "Failed"}, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
    )
    assert updated["status"]["phase"] == "Pending"
    assert updated["metadata"]["labels"] == {"a": "b"}
    patched = store.patch(
        "pods", "default", "web", {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}}, subresource="status"
    )
    assert patched["status"]["phase"] == "Running"
    assert "nodeName" not in patched["spec"]
    assert patched["metadata"]["generation"] == 1


def test_a_node_keeps_the_status_it_registers_with_and_is_tainted(store):
    node = store.create("nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}})
    assert node["status"]["capacity"] == {"cpu": "8"}
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


# -- deletion ------------------------------------------------------------------------------------------------------


def bound(store: Store, name: str = "web", **spec) -> dict:
    store.create("pods", pod(name, **spec))
    store.bind("default", name, {"target": {"name": "n"}})
    return store.get("pods", "default", name)


def events(store: Store, resource: str = "pods") -> list[str]:
    seen: list[str] = []
    store.subscribe(resource, lambda kind, obj, _old: seen.append(f"{kind} {obj['metadata']['name']}"))
    return seen


def test_a_bound_pod_terminates_until_someone_deletes_it_with_grace_zero(store):
    bound(store)
    seen = events(store)
    answer = store.delete("pods", "default", "web")
    assert parse_timestamp(answer["metadata"]["deletionTimestamp"]) == store.clock.now() + 30
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert store.get("pods", "default", "web") == answer
    store.delete("pods", "default", "web", grace_period=0)
    assert store.find("pods", "default", "web") is None
    assert seen == ["MODIFIED web", "MODIFIED web", "DELETED web"]


def test_a_second_delete_shortens_the_wait_and_never_lengthens_it(store):
    bound(store)
    store.delete("pods", "default", "web", grace_period=20)
    assert store.delete("pods", "default", "web", grace_period=60)["metadata"]["deletionGracePeriodSeconds"] == 20
    assert store.delete("pods", "default", "web", grace_period=5)["metadata"]["deletionGracePeriodSeconds"] == 5


@pytest.mark.parametrize("phase", [None, "Succeeded", "Failed"], ids=["without a node", "succeeded", "failed"])
def test_a_pod_nobody_runs_goes_at_once_with_modified_then_deleted(store, phase):
    store.create("pods", pod("web"))
    if phase is not None:
        store.bind("default", "web", {"target": {"name": "n"}})
        store.patch("pods", "default", "web", {"status": {"phase": phase}}, subresource="status")
    seen = events(store)
    store.delete("pods", "default", "web")
    assert seen == ["MODIFIED web", "DELETED web"]


def test_finalizers_hold_an_object_and_none_may_be_added_then(store):
    store.create("configmaps", {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}})
    held = store.delete("configmaps", "default", "c")
    assert held["metadata"]["deletionTimestamp"]
    with refused(422, "Invalid"):
        store.patch(
            "configmaps", "default", "c", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        )
    seen = events(store, "configmaps")
    store.patch("configmaps", "default", "c", {"metadata": {"finalizers": []}})
    assert store.find("configmaps", "default", "c") is None
    assert seen == ["DELETED c"]


def test_a_finalizer_holds_a_pod_past_its_grace(store):
    bound(store, finalizers=["example.com/hold"])
    store.delete("pods", "default", "web", grace_period=0)
    assert store.get("pods", "default", "web")["metadata"]["deletionGracePeriodSeconds"] == 0
    store.patch("pods", "default", "web", {"metadata": {"finalizers": None}})
    assert store.find("pods", "default", "web") is None


@pytest.mark.parametrize(
    ("propagation", "finalizer"),
    [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")],
    ids=["foreground", "orphan"],
)
def test_propagation_leaves_a_finalizer_for_the_collector(store, propagation, finalizer):
    store.create("configmaps", {"metadata": {"name": "c"}})
    assert store.delete("configmaps", "default", "c", propagation=propagation)["metadata"]["finalizers"] == [finalizer]


def test_a_namespace_terminates_until_finalized_and_takes_nothing_new(store):
    store.create("namespaces", {"metadata": {"name": "team"}})
    gone = store.delete("namespaces", None, "team")
    assert gone["status"]["phase"] == "Terminating"
    with refused(403, "Forbidden"):
        store.create("pods", pod("late"), namespace="team")
    store.update("namespaces", {**gone, "spec": {"finalizers": []}}, subresource="finalize")
    assert store.find("namespaces", None, "team") is None


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_delete_preconditions_protect_the_object(store, field):
    made = store.create("pods", pod("web"))
    with refused(409, "Conflict"):
        store.delete("pods", "default", "web", preconditions={field: "1"})
    store.delete("pods", "default", "web", preconditions={field: made["metadata"][field]})
    assert store.find("pods", "default", "web") is None


# -- subscribers ---------------------------------------------------------------------------------------------------


def test_a_subscriber_may_write_and_others_see_the_writes_in_order(store):
    seen = []

    def mark(kind, obj, _old):
        if kind == "ADDED":
            answer = store.patch("pods", "default", obj["metadata"]["name"], {"metadata": {"labels": {"seen": "yes"}}})
            assert answer["metadata"]["labels"]["seen"] == "yes"

    store.subscribe("pods", mark)
    store.subscribe("pods", lambda kind, obj, old: seen.append((kind, obj["metadata"].get("labels"), old is None)))
    store.create("pods", pod("web"))
    assert seen == [("ADDED", None, True), ("MODIFIED", {"seen": "yes"}, False)]


def test_a_failing_subscriber_does_not_keep_the_others_from_being_told(store):
    seen = []
    store.subscribe("pods", lambda *_event: 1 / 0)
    stop = store.subscribe("pods", lambda kind, _obj, _old: seen.append(kind))
    with pytest.raises(ExceptionGroup, match="subscribers"):
        store.create("pods", pod("a"))
    assert seen == ["ADDED"]
    assert store.get("pods", "default", "a")
    stop()
    with pytest.raises(ExceptionGroup):
        store.create("pods", pod("b"))
    assert seen == ["ADDED"]


# -- custom resource definitions -----------------------------------------------------------------------------------


def test_a_definition_is_served_at_once_and_withdrawn_with_its_objects(store):
    with pytest.raises(LookupError, match="widgets"):
        store.list("widgets.example.com")
    made = store.create(CRDS, definition())
    assert {found["type"]: found["status"] for found in made["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    store.create("widgets.example.com", {"metadata": {"name": "w"}, "spec": {"size": 1}})
    seen = events(store, "widgets.example.com")
    store.delete(CRDS, None, "widgets.example.com")
    assert seen == ["DELETED w"]
    with pytest.raises(LookupError, match="widgets"):
        store.list("widgets.example.com")


def test_generation_counts_spec_changes_only(store):
    store.create(CRDS, definition())
    store.create("widgets.example.com", {"metadata": {"name": "w"}, "spec": {"size": 1}, "status": {"state": "x"}})
    assert "status" not in store.get("widgets.example.com", "default", "w")
    status = store.patch(
        "widgets.example.com",
        "default",
        "w",
        {"status": {"state": "y"}, "metadata": {"labels": {"a": "b"}}},
        subresource="status",
    )
    assert status["metadata"]["generation"] == 1
    assert "labels" not in status["metadata"]
    label = store.patch("widgets.example.com", "default", "w", {"metadata": {"labels": {"a": "b"}}})
    assert label["metadata"]["generation"] == 1
    assert store.patch("widgets.example.com", "default", "w", {"spec": {"size": 2}})["metadata"]["generation"] == 2


# -- invariants ----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES),
        st.tuples(st.just("bind"), NAMES),
        st.tuples(st.just("label"), NAMES, st.sampled_from(["x", "y"])),
        st.tuples(st.just("status"), NAMES, st.sampled_from(["Running", "Succeeded"])),
        st.tuples(st.just("delete"), NAMES, st.sampled_from([None, 0])),
        st.tuples(st.just("evict"), NAMES),
    ),
    max_size=25,
)


def perform(store: Store, operation: tuple) -> None:
    verb, name, *rest = operation
    try:
        match verb:
            case "create":
                store.create("pods", pod(name))
            case "bind":
                store.bind("default", name, {"target": {"name": "n"}, "metadata": {"annotations": {"card": "0"}}})
            case "label":
                store.patch("pods", "default", name, {"metadata": {"labels": {"l": rest[0]}}})
            case "status":
                store.patch("pods", "default", name, {"status": {"phase": rest[0]}}, subresource="status")
            case "delete":
                store.delete("pods", "default", name, grace_period=rest[0])
            case _:
                store.evict("default", name)
    except ApiError as error:
        if error.code not in {404, 409}:
            raise


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_events_alone_rebuild_the_state_and_stored_objects_never_change(operations):
    store = Store(VirtualClock(), seed=1)
    mirror: dict[str, dict] = {}
    kept: list[tuple[dict, dict]] = []
    versions: list[int] = []

    def follow(kind, obj, old):
        versions.append(int(obj["metadata"]["resourceVersion"]))
        name = obj["metadata"]["name"]
        assert mirror.get(name) == old
        if kind == "DELETED":
            del mirror[name]
        else:
            mirror[name] = obj
        kept.append((obj, copy.deepcopy(obj)))

    store.subscribe("pods", follow)
    before = store.version
    for operation in operations:
        perform(store, operation)
    assert mirror == {found["metadata"]["name"]: found for found in store.list("pods")}
    assert versions == sorted(set(versions))
    assert all(now == then for now, then in kept)
    log = store.table("pods").since(before)
    assert [change.version for change in log] == versions


@settings(max_examples=40, deadline=None)
@given(OPERATIONS, st.integers(0, 25))
def test_the_state_at_an_earlier_version_is_what_it_was(operations, moment):
    store = Store(VirtualClock(), seed=1)
    for operation in operations[:moment]:
        perform(store, operation)
    version, then = store.version, list(store.list("pods"))
    for operation in operations[moment:]:
        perform(store, operation)
    assert [record.obj for record in store.table("pods").records_at(version, None)] == then
