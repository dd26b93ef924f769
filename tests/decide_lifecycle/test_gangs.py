import msgspec
import pytest

from muster.decide.lifecycle.actions import Create, Patch, Tell, Waiting, merge_difference
from muster.decide.lifecycle.gangs import phase_of, reconcile_members, reconcile_podgroup, tally, with_doubts
from muster.decide.lifecycle.podgroups import reconcile_batch_job, reconcile_pod
from muster.decide.lifecycle.queues import allocated, missing_queues, reconcile_queue
from muster.model.pods import Owner, Phase, Pod, Request, Shape, Share
from muster.model.policy import Policy
from muster.model.workloads import PodGroup, Queue, QueueState, Workload

POLICY = Policy()
ROOM = Waiting(code="NOT_ENOUGH_ROOM", message="asks 2, 1 is free")
FULL = Waiting(code="QUEUE_CAPABILITY", message="queue a is full", quota=True)
MISSING = Waiting(code="CLAIM_MISSING", message="no claim", nodes_help=False)


def pod(name="p", *, phase=Phase.PENDING, node=None, **values):
    values = {"scheduler_name": "muster", "gang": "ns/g", **values}
    return Pod(namespace="ns", name=name, uid=f"uid-{name}", phase=phase, node=node, **values)


def group(minimum=2, **values):
    return PodGroup(namespace="ns", name="g", uid="uid-g", min_member=minimum, **values)


RUNNING = {"phase": Phase.RUNNING, "node": "n"}
DONE = {"phase": Phase.SUCCEEDED, "node": "n"}
PHASES = {
    "no pods": ([], "Pending"),
    "fewer pods than the minimum": ([{}], "Pending"),
    "enough pods wait": ([{}, {}], "Inqueue"),
    "the minimum is bound": ([{"node": "n"}, {"node": "n"}], "Running"),
    "the minimum runs, a surplus pod waits": ([RUNNING, RUNNING, {}], "Running"),
    "one runs, one waits": ([RUNNING, {}], "Unknown"),
    "one runs, one leaves": ([RUNNING, {**RUNNING, "terminating": True}], "Unknown"),
    "one succeeded, one runs": ([DONE, RUNNING], "Running"),
    "all succeeded": ([DONE, DONE], "Completed"),
}


@pytest.mark.parametrize("name", PHASES)
def test_a_podgroups_phase(name):
    members, expected = PHASES[name]
    assert phase_of(group(), tally([pod(f"p{n}", **values) for n, values in enumerate(members)])) == expected


def write(found, actions):
    (patch,) = actions
    status = dict(found.status)
    for key, value in patch.body["status"].items():
        status.pop(key, None) if value is None else status.__setitem__(key, value)
    return msgspec.structs.replace(found, status=status)


def test_a_podgroups_status_is_written_on_change_and_numbers_alone_rarely():
    members = [pod("a"), pod("b")]
    options = {"policy": POLICY, "stands_alone": True}
    written = write(group(), reconcile_podgroup(group(), members, ROOM, now=100.0, **options))
    assert written.status["conditions"][0]["message"] == ROOM.message
    assert reconcile_podgroup(written, members, ROOM, now=101.0, **options) == ()
    moved = msgspec.structs.replace(ROOM, message="asks 2, 0 are free")
    assert reconcile_podgroup(written, members, moved, now=130.0, **options) == ()
    later = write(written, reconcile_podgroup(written, members, moved, now=170.0, **options))
    assert later.status["conditions"][0]["message"] == moved.message
    assert later.status["conditions"][0]["lastTransitionTime"] == written.status["conditions"][0]["lastTransitionTime"]
    placed = write(
        later, reconcile_podgroup(later, [pod("a", **RUNNING), pod("b", **RUNNING)], None, now=180.0, **options)
    )
    assert [c["type"] for c in placed.status["conditions"]] == ["Scheduled"]


def test_a_podgroup_of_another_schedulers_pods_is_left_alone():
    members = [pod("a", scheduler_name="other")]
    assert reconcile_podgroup(group(), members, ROOM, policy=POLICY, now=1.0, stands_alone=True) == ()


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [(ROOM, "Unschedulable"), (FULL, "QuotaBlocked"), (MISSING, "SchedulingBlocked")],
    ids=["room", "quota", "something is missing"],
)
def test_a_waiting_pod_is_told_why_once(waiting, reason):
    members = [pod("a"), pod("bound", node="n"), pod("foreign", scheduler_name="x"), pod("leaves", terminating=True)]
    (patch, event), told = reconcile_members(members, waiting, None, policy=POLICY, now=1.0)
    assert isinstance(patch, Patch)
    assert (patch.name, patch.body["status"]["conditions"][0]["reason"]) == ("a", reason)
    assert isinstance(event, Tell)
    known = [pod("a", unschedulable_reason=reason, unschedulable_message=waiting.message)]
    assert reconcile_members(known, waiting, told, policy=POLICY, now=2.0)[0] == ()
    assert reconcile_members(known, waiting, None, policy=POLICY, now=2.0)[0] == ()


def test_a_gated_pod_keeps_its_condition_and_is_told_once():
    gated = [pod("a", gated=True, unschedulable_reason="SchedulingGated")]
    (event,), told = reconcile_members(gated, MISSING, None, policy=POLICY, now=1.0)
    assert isinstance(event, Tell)
    assert reconcile_members(gated, MISSING, told, policy=POLICY, now=2.0)[0] == ()


def test_a_hundred_looks_with_nothing_new_write_nothing():
    members, told = [pod("a"), pod("b", gated=True, unschedulable_reason="SchedulingGated")], None
    _, told = reconcile_members(members, ROOM, told, policy=POLICY, now=1.0)
    known = [pod("a", unschedulable_reason="Unschedulable", unschedulable_message=ROOM.message), members[1]]
    for look in range(100):
        actions, told = reconcile_members(known, ROOM, told, policy=POLICY, now=2.0 + 60.0 * look)
        assert actions == ()


def test_what_the_owner_should_hear_besides_goes_with_the_reason():
    told = with_doubts(ROOM, ["there is no annotation x; did you mean y?"])
    assert told.message == "asks 2, 1 is free. Note: there is no annotation x; did you mean y?"
    assert with_doubts(ROOM, []) is ROOM


def test_pods_hear_of_newer_numbers_rarely():
    known = [pod("a", unschedulable_reason="Unschedulable", unschedulable_message=ROOM.message)]
    _, told = reconcile_members([pod("a")], ROOM, None, policy=POLICY, now=1.0)
    moved = msgspec.structs.replace(ROOM, message="asks 2, 0 are free")
    assert reconcile_members(known, moved, told, policy=POLICY, now=30.0)[0] == ()
    actions, _ = reconcile_members(known, moved, told, policy=POLICY, now=70.0)
    assert actions[0].body["status"]["conditions"][0]["message"] == moved.message


def test_what_a_queue_holds_is_told_in_kubernetes_words():
    share = Shape(request=Request(cpu=1500, memory=1024, share=Share(memory_mib=5120, core_percent=30)))
    whole = Shape(request=Request(cpu=500, cards=2, extended=(("example.com/a", 1),)))
    pods = [pod("a", node="n", shape=share), pod("b", node="n", shape=whole), pod("c", shape=whole)]
    assert allocated(pods) == {
        "cpu": "2000m", "example.com/a": "1", "memory": "1024", "nvidia.com/gpu": "2", "pods": "2",
        "volcano.sh/gpu-core": "30", "volcano.sh/gpu-memory": "5120",
    }  # fmt: skip


def test_a_closing_queue_closes_when_its_last_gang_is_done():
    queue = Queue(name="q", state=QueueState.CLOSING, status={"state": "Closing"})
    (patch,) = reconcile_queue(queue, [group(status={"phase": "Completed"})], [])
    assert patch.body["status"]["state"] == "Closed"
    (patch,) = reconcile_queue(queue, [group(status={"phase": "Running"})], [])
    assert "state" not in patch.body["status"]


def test_what_a_queue_is_entitled_to_stands_beside_what_it_holds():
    queue = Queue(name="q", status={"share": {"gpu": "8"}})
    (patch,) = reconcile_queue(queue, [group(status={"phase": "Running"})], [], share="16.5")
    assert (patch.body["status"]["share"], patch.body["status"]["running"], patch.status) == ({"gpu": "16.5"}, 1, True)
    unknown = reconcile_queue(queue, [group(status={"phase": "Running"})], [])
    assert "share" not in unknown[0].body["status"], "what was told last stands while nobody tells"


def test_a_pod_of_its_own_may_name_its_queue_by_label():
    create, _ = reconcile_pod(
        pod("a", gang=None, labels={"volcano.sh/queue-name": "research"}), None, namespace=None, policy=POLICY
    )
    assert create.document["spec"]["queue"] == "research"


def test_the_queues_that_must_exist_are_made_when_they_do_not():
    assert [one.name for one in missing_queues([], policy=POLICY)] == ["root", "default"]
    assert missing_queues(["default", "root", "x"], policy=POLICY) == ()


def batch_job(annotations=None, template_annotations=None, *, scheduler="muster", **values):
    template = {"metadata": {"annotations": template_annotations or {}}, "spec": {"schedulerName": scheduler}}
    return Workload(
        kind="job",
        namespace="ns",
        name="j",
        uid="uid-j",
        annotations=annotations or {},
        spec={"template": template},
        **values,
    )


MINIMUMS = {
    "none": ({}, {}, 1),
    "the spelling in circulation": ({"volcano.sh/job-min-available": "4"}, {}, 4),
    "Volcano's own": ({"scheduling.volcano.sh/group-min-member": "3"}, {}, 3),
    "on the template": ({}, {"scheduling.volcano.sh/group-min-member": "2"}, 2),
}


@pytest.mark.parametrize("name", MINIMUMS)
def test_a_batch_jobs_minimum(name):
    annotations, marks, expected = MINIMUMS[name]
    (create,) = reconcile_batch_job(batch_job(annotations, marks), None, namespace=None, policy=POLICY)
    assert (create.name, create.document["spec"]["minMember"]) == ("podgroup-uid-j", expected)


def test_a_minimum_that_is_no_number_makes_no_gang_and_says_so():
    (told,) = reconcile_batch_job(
        batch_job({"volcano.sh/job-min-available": "half"}), None, namespace=None, policy=POLICY
    )
    assert isinstance(told, Tell)
    assert "'half' must be a number of pods such as 4" in told.message


LEFT_ALONE = {
    "another scheduler's": batch_job(scheduler="default-scheduler"),
    "one being deleted": batch_job(terminating=True),
    "one whose pods name a group": batch_job(None, {"scheduling.k8s.io/group-name": "x"}),
    "one that has ended": batch_job(status={"conditions": [{"type": "Complete", "status": "True"}]}),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_batch_job_that_is_left_alone(name):
    assert reconcile_batch_job(LEFT_ALONE[name], None, namespace=None, policy=POLICY) == ()


def test_a_pod_of_a_replica_set_is_a_gang_of_its_own_and_owns_it():
    owner = Owner(api_version="apps/v1", kind="ReplicaSet", name="r", uid="uid-r")
    alone = pod("a", gang=None, owner=owner, resource_version="5")
    create, patch = reconcile_pod(alone, None, namespace=None, policy=POLICY)
    assert isinstance(create, Create)
    assert create.document["metadata"]["ownerReferences"][0]["uid"] == "uid-a"
    assert patch.body == {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-uid-a"}}}
    assert patch.resource_version == "5"


POD_LEFT_ALONE = {
    "another scheduler's": pod("a", gang=None, scheduler_name="default-scheduler"),
    "one that names a group": pod("a"),
    "one that has ended": pod("a", gang=None, **DONE),
    "one being deleted": pod("a", gang=None, terminating=True),
    "one whose job has no group yet": pod(
        "a", gang=None, owner=Owner(api_version="batch/v1", kind="Job", name="j", uid="u")
    ),
}


@pytest.mark.parametrize("name", POD_LEFT_ALONE)
def test_a_pod_that_is_left_alone(name):
    assert reconcile_pod(POD_LEFT_ALONE[name], None, namespace=None, policy=POLICY) == ()


def test_a_difference_as_a_merge_patch():
    old = {"a": 1, "b": {"c": 1, "d": 2}, "l": [1]}
    assert merge_difference(old, {"a": 1, "b": {"c": 2}, "l": [2]}) == {"b": {"d": None, "c": 2}, "l": [2]}
    assert merge_difference(old, dict(old)) == {}
