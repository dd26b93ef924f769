"""The parts of the simulated API server by themselves: clock, selectors, quantities, schemas, admission, tables."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.quantity import parse_quantity
from muster.simulator.clock import VirtualClock, micro_timestamp, parse_timestamp, timestamp
from muster.simulator.columns import human_duration
from muster.simulator.quantities import canonical_quantity
from muster.simulator.schema import apply_schema
from muster.simulator.selectors import field_predicate, label_predicate, parse_fields
from muster.simulator.store import ApiError, Store
from muster.simulator.tables import json_path_values
from tests.simulator.http_api import pod

# -- clock ---------------------------------------------------------------------------------------------------------


async def test_virtual_time_fires_timers_in_order_each_at_its_own_moment():
    clock = VirtualClock(start=100.0)
    fired: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        fired.append((name, clock.now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 5))
        group.create_task(sleeper("early", 1))
        clock.call_later(2, lambda: clock.call_later(1, lambda: fired.append(("nested", clock.now()))))
        clock.call_later(4, lambda: fired.append(("cancelled", clock.now()))).cancel()
        await clock.advance(10)
    assert fired == [("early", 101.0), ("nested", 103.0), ("late", 105.0)]
    assert clock.now() == 110.0


@given(st.integers(0, 4_000_000_000))
def test_timestamps_come_back_as_they_were(seconds):
    assert parse_timestamp(timestamp(seconds)) == seconds
    assert parse_timestamp(micro_timestamp(seconds)) == seconds


# -- selectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", "abc"),
        ("app=x", "a"),
        ("app==x", "a"),
        ("app!=x", "bc"),
        ("app in (x, y)", "ab"),
        ("app notin (x)", "bc"),
        ("app", "ab"),
        ("!app", "c"),
        ("size>2", "b"),
        ("size<2", "a"),
        ("app in (x,y),size>1", "b"),
    ],
)
def test_label_selectors(selector, chosen):
    labels = {"a": {"app": "x", "size": "1"}, "b": {"app": "y", "size": "3"}, "c": {}}
    predicate = label_predicate(selector)
    found = [name for name, held in labels.items() if predicate is None or predicate({"metadata": {"labels": held}})]
    assert "".join(found) == chosen


@pytest.mark.parametrize("selector", ["a b", "a in x", "size>many", "=x"])
def test_unreadable_label_selectors_are_400(selector):
    with pytest.raises(ApiError) as refusal:
        label_predicate(selector)
    assert refusal.value.code == 400


def test_field_selectors_compare_text_and_refuse_fields_that_are_not_indexed():
    bound = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    waiting = {"metadata": {"name": "q"}, "spec": {}, "status": {"phase": "Pending"}}
    for text, expected in (
        ("spec.nodeName=n", [True, False]),
        ("spec.nodeName=", [False, True]),
        ("status.phase!=Running,metadata.name=q", [False, True]),
    ):
        predicate = field_predicate(parse_fields(text), resource="pods")
        assert predicate is not None
        assert [predicate(bound), predicate(waiting)] == expected
    free = field_predicate(parse_fields("spec.unschedulable=false"), resource="nodes")
    assert free is not None
    assert free({"metadata": {}, "spec": {}})
    with pytest.raises(ApiError, match=r"field label not supported: spec\.image"):
        field_predicate(parse_fields("spec.image=x"), resource="pods")


# -- quantities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("0.5", "500m"), ("1024Mi", "1Gi"), ("2000m", "2"), ("1000", "1k"), ("1.5Gi", "1536Mi"), ("0", "0"), ("0.1Ki", "102400m"),
        ("1e3", "1e3"), ("2147483648", "2147483648"), (8, "8"), (12000, "12k"), ("100n", "100n"), ("0.5Gi", "512Mi"), ("-1024Mi", "-1Gi"),
    ],
)  # fmt: skip
def test_canonical_quantities(given_text, canonical):
    assert canonical_quantity(given_text) == canonical


@given(st.integers(0, 10**9), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]))
def test_the_canonical_form_means_the_same_and_is_stable(number, suffix):
    text = f"{number}{suffix}"
    once = canonical_quantity(text)
    assert parse_quantity(once) == parse_quantity(text)
    assert canonical_quantity(once) == once


# -- schemas -------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "weight": {"type": "integer", "minimum": 1, "default": 1},
                "mode": {"type": "string", "enum": ["hard", "soft"]},
                "share": {"x-kubernetes-int-or-string": True},
                "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
                "tasks": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
                },
            },
        }
    },
}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.name: Required value"),
        ({"name": "A"}, "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'"),
        ({"name": "a", "weight": 0}, "spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1"),
        ({"name": "a", "weight": "2"}, 'spec.weight: Invalid value: "string": spec.weight in body must be of type integer: "string"'),
        ({"name": "a", "mode": "x"}, 'spec.mode: Unsupported value: "x": supported values: "hard", "soft"'),
        ({"name": "a", "share": True}, 'spec.share: Invalid value: "boolean": spec.share in body must be of type integer,string: "boolean"'),
        ({"name": "a", "limits": {"gpu": "x"}}, 'spec.limits.gpu: Invalid value: "string": spec.limits.gpu in body must be of type integer: "string"'),
        ({"name": "a", "tasks": [{"n": "x"}]}, 'spec.tasks[0].n: Invalid value: "string": spec.tasks[0].n in body must be of type integer: "string"'),
        ({"name": "a", "tasks": [{}, {}, {}]}, "spec.tasks: Too many: 3: must have at most 2 items"),
    ],
)  # fmt: skip
def test_a_broken_field_is_named_as_the_real_server_names_it(spec, message):
    assert [error.text() for error in apply_schema(SCHEMA, {"spec": spec})] == [message]


def test_unknown_fields_go_and_defaults_come():
    obj = {
        "kind": "X",
        "metadata": {"name": "x"},
        "extra": 1,
        "spec": {"name": "a", "weight": None, "tasks": [{"n": 1, "m": 2}]},
    }
    assert apply_schema(SCHEMA, obj) == []
    assert obj == {"kind": "X", "metadata": {"name": "x"}, "spec": {"name": "a", "weight": 1, "tasks": [{"n": 1}]}}


# -- admission -----------------------------------------------------------------------------------------------------

CLASSES = "priorityclasses.scheduling.k8s.io"


@pytest.fixture
def store() -> Store:
    return Store(VirtualClock(), seed=2)


def test_a_priority_class_gives_a_pod_its_number(store):
    store.create(CLASSES, {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"})
    store.create(CLASSES, {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True})
    named = store.create("pods", pod("a", priorityClassName="high"))["spec"]
    assert (named["priority"], named["preemptionPolicy"]) == (100, "Never")
    usual = store.create("pods", pod("b"))["spec"]
    assert (usual["priority"], usual["priorityClassName"]) == (50, "usual")
    assert store.create("pods", pod("c", priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    for spec, message in (
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        ({"priority": 7}, "must not be provided"),
    ):
        with pytest.raises(ApiError, match=message) as refusal:
            store.create("pods", pod("d", **spec))
        assert refusal.value.code == 403


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"metadata": {"name": "big"}, "value": 1_000_000_001}, "maximum allowed value"),
        ({"metadata": {"name": "system-mine"}, "value": 1}, "reserved for system use"),
        ({"metadata": {"name": "second"}, "value": 1, "globalDefault": True}, "already marked as globalDefault"),
    ],
)
def test_priority_classes_that_are_refused(store, obj, message):
    store.create(CLASSES, {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True})
    with pytest.raises(ApiError, match=message):
        store.create(CLASSES, obj)


def test_limits_become_requests_and_node_troubles_are_tolerated_for_300_seconds(store):
    made = store.create(
        "pods", pod("a", containers=[{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}])
    )
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert {found["key"]: found["tolerationSeconds"] for found in made["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }
    assert (made["spec"]["schedulerName"], made["spec"]["restartPolicy"]) == ("default-scheduler", "Always")


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"requests": {"nvidia.com/gpu": 1}}, "Limit must be set for non overcommitable resources"),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}, "must be equal to nvidia.com/gpu limit"),
        ({"limits": {"nvidia.com/gpu": "0.5"}}, "must be an integer"),
        ({"requests": {"cpu": 2}, "limits": {"cpu": 1}}, "must be less than or equal to cpu limit"),
    ],
)
def test_resources_that_are_refused(store, resources, message):
    with pytest.raises(ApiError, match=message) as refusal:
        store.create("pods", pod("a", containers=[{"name": "c", "image": "x", "resources": resources}]))
    assert refusal.value.code == 422


def test_a_pods_spec_is_fixed_but_for_its_image_and_new_tolerations(store):
    store.create("pods", pod("a"))
    for spec in ({"nodeName": "n"}, {"schedulerName": "x"}, {"priority": 3}, {"tolerations": []}):
        with pytest.raises(ApiError) as refusal:
            store.patch("pods", "default", "a", {"spec": spec})
        assert refusal.value.code == 422
    store.patch(
        "pods",
        "default",
        "a",
        {"spec": {"containers": [{"name": "c", "image": "x:2"}]}},
        content_type="application/strategic-merge-patch+json",
    )
    assert store.get("pods", "default", "a")["metadata"]["generation"] == 2


def test_gates_hold_a_binding_back_and_may_only_go(store):
    made = store.create("pods", pod("a", schedulingGates=[{"name": "g"}]))
    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
    with pytest.raises(ApiError, match="schedulingGates") as refusal:
        store.bind("default", "a", {"target": {"name": "n"}})
    assert refusal.value.code == 409
    store.patch("pods", "default", "a", {"spec": {"schedulingGates": None, "nodeSelector": {"rack": "r1"}}})
    store.bind("default", "a", {"target": {"name": "n"}})


def test_a_jobs_template_is_fixed_once_it_may_run(store):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    job = store.create("jobs.batch", {"metadata": {"name": "j"}, "spec": {"template": template, "suspend": True}})
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == "j"
    assert job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] == job["metadata"]["uid"]
    store.patch("jobs.batch", "default", "j", {"spec": {"template": {"spec": {"nodeSelector": {"rack": "r1"}}}}})
    store.patch("jobs.batch", "default", "j", {"spec": {"suspend": False}})
    with pytest.raises(ApiError, match="field is immutable"):
        store.patch("jobs.batch", "default", "j", {"spec": {"template": {"spec": {"nodeSelector": {"rack": "r2"}}}}})


@pytest.mark.parametrize(
    ("status", "phase", "code"),
    [
        ({"disruptionsAllowed": 1, "observedGeneration": 1}, "Running", None),
        ({"disruptionsAllowed": 0, "observedGeneration": 1}, "Running", 429),
        (None, "Running", 429),
        ({"disruptionsAllowed": 1}, "Running", 429),
        ({"disruptionsAllowed": 0}, "Pending", None),
        ({"desiredHealthy": 1, "currentHealthy": 1, "observedGeneration": 1}, "Running", None),
    ],
    ids=[
        "a budget with room",
        "a budget without room",
        "a budget nobody computed",
        "a budget that was changed since",
        "a pod that does not run",
        "a pod that is not ready while enough others are",
    ],
)
def test_an_eviction_asks_the_disruption_budget(store, status, phase, code):
    store.create("pods", pod("a", labels={"app": "x"}))
    store.bind("default", "a", {"target": {"name": "n"}})
    store.patch("pods", "default", "a", {"status": {"phase": phase}}, subresource="status")
    budgets = "poddisruptionbudgets.policy"
    store.create(
        budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    )
    if status is not None:
        store.patch(budgets, "default", "b", {"status": status}, subresource="status")
    if code is not None:
        with pytest.raises(ApiError, match="disruption budget") as refusal:
            store.evict("default", "a")
        assert refusal.value.code == code
        assert "deletionTimestamp" not in store.get("pods", "default", "a")["metadata"]
        return
    store.evict("default", "a")
    assert "DisruptionTarget" in {found["type"] for found in store.get("pods", "default", "a")["status"]["conditions"]}
    if phase == "Running" and "disruptionsAllowed" in (status or {}):
        assert store.get(budgets, "default", "b")["status"]["disruptionsAllowed"] == 0


# -- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (5, "5s"),
        (119, "119s"),
        (150, "2m30s"),
        (600, "10m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (90000, "25h"),
        (200000, "2d7h"),
        (864000, "10d"),
        (86400 * 800, "2y70d"),
    ],
)
def test_ages_are_shown_as_kubectl_shows_them(seconds, shown):
    assert human_duration(seconds) == shown


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.size", [3]),
        (".spec.list[1]", ["b"]),
        (".spec.list[*]", ["a", "b"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".metadata.labels['a.b/c']", ["x"]),
        (".none.here", []),
    ],
)
def test_json_paths_of_columns(path, values):
    obj = {
        "metadata": {"labels": {"a.b/c": "x"}},
        "spec": {"size": 3, "list": ["a", "b"]},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    assert json_path_values(path, obj) == values
