"""Queues, jobs and policy against practice: what no single object shows."""

import pytest

from muster.decide.findings import Problem
from muster.decide.linting_documents import surroundings_of
from muster.decide.linting_queues import Job, Surroundings, lint_queues
from muster.model.policy import Policy, QueueRules, Tenant
from muster.model.units import ONE_CARD
from muster.model.workloads import Limits, PriorityClass, Queue, QueueState


def cards(number):
    return Limits(amounts={"gpu": number * ONE_CARD})


def queue(name="q", **more):
    amounts = {key: cards(more.pop(key)) for key in ("guarantee", "deserved", "capability") if key in more}
    return Queue(name=name, **amounts, **more)


def job(name="Job ns/j", *, queue="q", namespace="ns", **more):
    return Job(name=name, namespace=namespace, queue=queue, **more)


def found(**around):
    around.setdefault("room", cards(100))
    return [
        (about, isinstance(one, Problem), one.field, one.message) for about, one in lint_queues(Surroundings(**around))
    ]


CASES = [
    pytest.param({"queues": (queue(deserved=60),)}, None, "", id="60 % of the cards deserved is fine"),
    pytest.param({"queues": (queue("a", deserved=40), queue("b", deserved=21))}, ("queues", False), "queues a, b deserve 61 cards together, 61 % of the 100 cards there are", id="more than 60 % leaves little to borrow"),
    pytest.param({"queues": (queue("a", deserved=80), queue("b", deserved=21))}, ("queues", True), "have deserved 101 cards together, and all nodes have 100 cards", id="more than there is cannot be kept"),
    pytest.param({"queues": (queue("a", deserved=101),), "room": Limits()}, None, "", id="nothing is said of room that is not known"),
    pytest.param({"queues": (queue("p", deserved=50), queue("c", parent="p", deserved=30))}, None, "", id="a child does not count beside its parent"),
    pytest.param({"queues": (queue("p", deserved=10), queue("c", parent="p", deserved=6), queue("d", parent="p", deserved=5))}, ("Queue p", True), "the queues below it (c, d) have deserved 11 together, more than its own 10", id="children that deserve more than their parent"),
    pytest.param({"queues": (queue("p", guarantee=2), queue("c", parent="p", guarantee=3))}, ("Queue p", True), "have guarantee 3 together", id="children with more guaranteed than their parent"),
    pytest.param({"queues": (queue("p", capability=4), queue("c", parent="p", capability=8))}, ("Queue c", False), "capability 8 is above that of its parent p, 4: the parent's counts", id="a child that may have more than its parent"),
    pytest.param({"queues": (queue(deserved=8, capability=4),)}, ("Queue q", True), "capability 4 is below deserved 8: it could never be used", id="a cap under what is deserved"),
    pytest.param({"queues": (queue(deserved=4, guarantee=8),)}, ("Queue q", True), "deserved 4 is below guarantee 8", id="more guaranteed than deserved"),
    pytest.param({"queues": (queue("p", parent="nope"),), "all_queues": True}, ("Queue p", True), "there is no queue nope", id="a parent that is not there"),
    pytest.param({"queues": (queue("p", parent="nope"),)}, ("Queue p", False), "there is no queue nope among these files", id="a parent in no file may exist all the same"),
    pytest.param({"queues": (queue("a", parent="b"), queue("b", parent="a"))}, ("Queue a", True), "a stands below itself: a → b → a", id="queues in a circle"),
    pytest.param({"queues": (queue(state=QueueState.CLOSED),), "pending": {"q": 2}}, ("Queue q", True), "2 jobs wait in it, and it is Closed", id="a closed queue with jobs that wait"),
    pytest.param({"queues": (queue(state=QueueState.CLOSED),), "pending": {"q": 0}}, None, "", id="a closed queue without any"),
    pytest.param({"jobs": (job(minimum=10, pods=10, expected=86_400),)}, ("Job ns/j", False), "if it can run with fewer, about 8 lets it start earlier", id="a long job that needs every pod"),
    pytest.param({"jobs": (job(minimum=8, pods=10, expected=86_400),)}, None, "", id="a long job with 80 %"),
    pytest.param({"jobs": (job(minimum=2, pods=10, expected=600),)}, ("Job ns/j", False), "8 or more suits it", id="a short job that starts with few"),
    pytest.param({"jobs": (job(minimum=10, pods=10, expected=600),)}, None, "", id="a short job that starts whole"),
    pytest.param({"jobs": (job(minimum=10, pods=10),)}, None, "", id="nobody knows how long it runs"),
    pytest.param({"jobs": (job(), job("Deployment ns/d", serves=True))}, ("Queue q", False), "work that ends (Job ns/j) and work that serves for ever (Deployment ns/d)", id="training and inference in one queue"),
    pytest.param({"jobs": (job(), job("Deployment ns/d", serves=True, queue="r"))}, None, "", id="training and inference apart"),
    pytest.param({"queues": (queue("train"),), "all_queues": True, "jobs": (job(queue="trian"),)}, ("Job ns/j", True), "there is no queue trian; did you mean train?", id="a job of a queue that is not there"),
    pytest.param({"policy": Policy(queues={"q": QueueRules(namespaces=("a",))}), "jobs": (job(),)}, ("Job ns/j", True), "queue q takes jobs of namespace a only, not of ns", id="a job that its queue does not take"),
    pytest.param({"policy": Policy(queues={"trian": QueueRules()}), "queues": (queue("train"),)}, ("policy", False), "there is no queue trian among these files; did you mean train?", id="rules for a queue that is not there"),
    pytest.param({"policy": Policy(tenants={"t": Tenant(queues=("nope",))}), "queues": (queue("train"),), "all_queues": True}, ("policy", False), "there is no queue nope", id="a tenant's queue that is not there"),
    pytest.param({"priority_classes": (PriorityClass(name="job-high", value=1), PriorityClass(name="job-low", value=5))}, ("PriorityClass job-high", False), "its value 1 is below the 5 of job-low, which sounds less urgent", id="high below low"),
    pytest.param({"priority_classes": (PriorityClass(name="production-high", value=100), PriorityClass(name="batch-normal", value=50), PriorityClass(name="offline-low", value=0))}, None, "", id="three levels in order"),
    pytest.param(
        {
            "queues": (queue("first", priority=5), queue("second")),
            "priority_classes": (PriorityClass(name="a", value=1), PriorityClass(name="b", value=9)),
            "policy": Policy(queues={"first": QueueRules(priority_classes=("a",)), "second": QueueRules(priority_classes=("b",))}),
        },
        ("Queue first", False), "it goes before queue second", id="a queue that goes first with jobs that are less urgent",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("around", "about", "told"), CASES)
def test_practice(around, about, told):
    results = found(**around)
    if about is None:
        assert not results
        return
    assert [(where, is_problem) for where, is_problem, _, _ in results] == [about]
    assert told in results[0][3]


def test_documents_are_read_as_what_they_ask_for():
    vcjob = {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "llm", "namespace": "a", "annotations": {"muster.dev/expected-duration": "5h"}},
        "spec": {"minAvailable": 6, "queue": "train", "priorityClassName": "high", "tasks": [{"replicas": 4}, {"replicas": 2}]},
    }  # fmt: skip
    serving = {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "chat", "annotations": {"scheduling.volcano.sh/queue-name": "serve"}},
        "spec": {"replicas": 2, "template": {"spec": {"schedulerName": "muster"}}},
    }  # fmt: skip
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {}}}
    broken = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "b"}, "spec": {"deserved": {"gpu": "x"}}}  # fmt: skip
    around = surroundings_of([vcjob, serving, foreign, broken, None, "text"], policy=Policy())
    assert around.jobs == (
        Job(
            name="Job a/llm", namespace="a", queue="train", priority_class="high", minimum=6, pods=6, expected=18_000.0
        ),
        Job(name="Deployment default/chat", namespace="default", queue="serve", serves=True, minimum=1, pods=2),
    )
    assert around.queues == ()
