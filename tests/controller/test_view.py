from hypothesis import given
from hypothesis import strategies as st

from muster.bus.state import Change
from muster.controller.view import Target, View
from muster.model.nodes import Card, Node
from muster.model.pods import Owner, Pod
from muster.model.policy import Policy
from muster.model.workloads import PodGroup, Workload

OWNER = Owner(api_version="batch.volcano.sh/v1alpha1", kind="Job", name="j", uid="uid-j")


def change(kind, key, found):
    return Change(kind=kind, key=key, object=found, resource_version="1", sequence=1)


def job(name="j"):
    return Workload(kind="vcjob", namespace="ns", name=name, uid=f"uid-{name}")


def group(queue="q"):
    return PodGroup(namespace="ns", name="g", uid="uid-g", queue=queue, owner=OWNER)


def pod(name, **values):
    return Pod(namespace="ns", name=name, uid=f"uid-{name}", **values)


def test_a_pod_concerns_its_job_its_gang_and_its_queue():
    view = View(Policy())
    view.apply(change("workload", "vcjob/ns/j", job()))
    view.apply(change("podgroup", "ns/g", group()))
    targets = view.apply(change("pod", "ns/p", pod("p", gang="ns/g", owner=OWNER)))
    expected = {
        Target("pod", "ns/p"),
        Target("workload", "vcjob/ns/j"),
        Target("podgroup", "ns/g"),
        Target("queue", "q"),
    }
    assert targets == expected
    assert view.apply(change("pod", "ns/p", None)) == expected


def test_a_group_that_moves_concerns_both_queues():
    view = View(Policy())
    view.apply(change("podgroup", "ns/g", group("a")))
    targets = view.apply(change("podgroup", "ns/g", group("b")))
    assert {Target("queue", "a"), Target("queue", "b")} <= targets
    assert view.groups_of_queue("a") == []


def test_a_larger_card_concerns_jobs_without_pods():
    view = View(Policy())
    view.apply(change("workload", "vcjob/ns/j", job()))
    node = Node(name="n", cards=(Card(index=0, memory_mib=81920),))
    assert view.apply(change("node", "n", node)) == {Target("workload", "vcjob/ns/j")}
    assert view.cluster().largest_card_mib == 81920
    assert view.apply(change("node", "n", node)) == set()


PODS = st.builds(
    pod,
    st.sampled_from("abc"),
    gang=st.sampled_from([None, "ns/g", "ns/h"]),
    owner=st.sampled_from([None, OWNER]),
)


@given(st.lists(st.one_of(st.sampled_from("abc"), PODS), max_size=20))
def test_indexes_are_what_a_recount_gives(steps):
    view = View(Policy())
    for step in steps:
        if isinstance(step, str):
            view.apply(change("pod", f"ns/{step}", None))
        else:
            view.apply(change("pod", step.key, step))
    for gang in ("ns/g", "ns/h"):
        assert view.pods_of_gang(gang) == sorted(
            (p for p in view.pods.values() if p.gang == gang), key=lambda p: p.name
        )
    assert view.pods_of_owner(OWNER.uid) == sorted((p for p in view.pods.values() if p.owner), key=lambda p: p.name)
