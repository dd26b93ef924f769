"""Fenced writes: what is sent, with which preconditions, and what an answer means (rules C and D)."""

import pytest

from muster.fenced.executor import Executor, Outcome, Seen
from muster.kube.errors import Conflict, Invalid, NotFound, TooManyRequests, Unavailable
from muster.kube.writer import Fenced
from muster.model.units import NodeName, PodUid, Sequence

UID = PodUid("u1")
NODE = NodeName("n1")


class Pods:
    """An API server with one pod that answers by a script."""

    def __init__(self, *, fence: int = 0, node: str | None = None, version: int = 10, **state: bool) -> None:
        self.pod = Seen(
            uid=UID, resource_version=str(version), node=NodeName(node) if node else None, fence=fence, **state
        )
        self.exists = True
        self.errors: list[Exception] = []
        self.writes: list[tuple[str, str]] = []

    def change(self, **fields: object) -> None:
        import msgspec

        version = str(int(self.pod.resource_version) + 1)
        self.pod = msgspec.structs.replace(self.pod, resource_version=version, **fields)

    async def get(self, namespace: str, name: str) -> Seen:
        if not self.exists:
            raise NotFound("gone")
        return self.pod

    async def touch(
        self, namespace: str, name: str, *, uid: PodUid, token: Sequence, known: Seen | None = None, annotations=None
    ) -> Seen:
        if not self.exists or self.pod.uid != uid:
            raise NotFound("gone")
        if self.pod.fence > token:
            raise Fenced("newer", found=Sequence(self.pod.fence))
        if self.pod.fence < token:
            self.writes.append(("touch", self.pod.resource_version))
            self.change(fence=token)
        return self.pod

    def _check(self, verb: str, uid: PodUid, resource_version: str) -> None:
        self.writes.append((verb, resource_version))
        if self.errors:
            raise self.errors.pop(0)
        if not self.exists:
            raise NotFound("gone")
        if uid != self.pod.uid or resource_version != self.pod.resource_version:
            raise Conflict("stale", precondition=True)

    async def bind(self, namespace, name, *, uid, resource_version, node, annotations) -> None:
        self._check("bind", uid, resource_version)
        if self.pod.node is not None:
            raise Conflict("assigned", assigned_node=self.pod.node)
        self.change(node=node)

    async def evict(self, namespace, name, *, uid, resource_version) -> None:
        self._check("evict", uid, resource_version)
        self.change(terminating=True)


async def bind(pods: Pods, *, token: int = 5, known: Seen | None = None):
    return await Executor(pods).bind("ns", "p1", uid=UID, node=NODE, token=Sequence(token), annotations={}, known=known)


async def test_the_first_attempt_carries_the_version_that_state_showed():
    pods = Pods()
    assert (await bind(pods, known=pods.pod)).outcome is Outcome.DONE
    assert pods.writes == [("bind", "10")]


async def test_after_a_stale_version_the_pod_is_read_again_before_the_retry():
    pods = Pods(version=12)
    stale = Seen(uid=UID, resource_version="10", node=None, fence=0)
    assert (await bind(pods, known=stale)).outcome is Outcome.DONE
    assert pods.writes == [("bind", "10"), ("bind", "12")]


async def test_a_newer_fence_read_after_a_conflict_ends_the_attempt():
    pods = Pods(version=12, fence=9)
    stale = Seen(uid=UID, resource_version="10", node=None, fence=0)
    assert (await bind(pods, token=5, known=stale)).outcome is Outcome.SUPERSEDED
    assert pods.pod.node is None


@pytest.mark.parametrize(
    ("pods", "outcome"),
    [
        pytest.param(Pods(node="n1"), Outcome.DONE, id="bound there already: done"),
        pytest.param(Pods(node="n2"), Outcome.ELSEWHERE, id="bound elsewhere: nothing is sent"),
        pytest.param(Pods(fence=6), Outcome.SUPERSEDED, id="a newer fence: nothing is sent"),
        pytest.param(Pods(finished=True), Outcome.FINISHED, id="ended: nothing is sent"),
        pytest.param(Pods(terminating=True), Outcome.GONE, id="leaving: nothing is sent"),
    ],
)
async def test_a_pod_that_must_not_be_bound(pods, outcome):
    assert (await bind(pods)).outcome is outcome
    assert pods.writes == []


async def test_a_pod_of_the_same_name_with_another_uid_is_gone():
    pods = Pods()
    pods.change(uid=PodUid("u2"))
    assert (await bind(pods)).outcome is Outcome.GONE


@pytest.mark.parametrize(
    ("error", "outcome", "wait"),
    [
        pytest.param(TooManyRequests("slow", retry_after=3.0), Outcome.AGAIN, 3.0, id="429 waits as told"),
        pytest.param(
            Unavailable("timeout", cause="timeout", unknown_outcome=True), Outcome.AGAIN, 0.5, id="no answer: again"
        ),
        pytest.param(Invalid("no such field", status=422), Outcome.REFUSED, 0.0, id="422 is final"),
    ],
)
async def test_an_error_of_a_binding(error, outcome, wait):
    pods = Pods()
    pods.errors = [error]
    result = await bind(pods)
    assert (result.outcome, result.retry_after) == (outcome, wait)


async def test_a_lost_answer_is_found_out_by_reading():
    pods = Pods()
    pods.errors = [Unavailable("timeout", cause="timeout", unknown_outcome=True)]
    assert (await bind(pods)).outcome is Outcome.AGAIN
    pods.change(node=NODE)  # it had been carried out
    assert (await bind(pods)).outcome is Outcome.DONE
    assert len(pods.writes) == 1


async def undo(pods: Pods, *, token: int = 5):
    return await Executor(pods).undo("ns", "p1", uid=UID, node=NODE, token=Sequence(token))


async def test_undoing_an_unbound_pod_only_touches_it():
    pods = Pods()
    assert (await undo(pods)).outcome is Outcome.DONE
    assert pods.writes == [("touch", "10")]
    assert pods.pod.fence == 5


async def test_undoing_a_bound_pod_touches_and_then_evicts_what_the_touch_showed():
    pods = Pods(node="n1")
    assert (await undo(pods)).outcome is Outcome.DONE
    assert pods.writes == [("touch", "10"), ("evict", "11")]


async def test_a_pod_that_somebody_bound_elsewhere_is_not_evicted():
    pods = Pods(node="n2")
    assert (await undo(pods)).outcome is Outcome.ELSEWHERE
    assert [verb for verb, _ in pods.writes] == ["touch"]


async def test_a_deposed_leader_evicts_nothing():
    pods = Pods(node="n1", fence=9)
    assert (await undo(pods, token=5)).outcome is Outcome.SUPERSEDED
    assert pods.writes == []


async def test_a_binding_of_a_deposed_leader_that_arrives_after_the_touch_is_refused():
    pods = Pods()
    old = pods.pod
    await Executor(pods).touch("ns", "p1", uid=UID, token=Sequence(9))
    with pytest.raises(Conflict):
        await pods.bind("ns", "p1", uid=UID, resource_version=old.resource_version, node=NODE, annotations={})
    assert pods.pod.node is None
