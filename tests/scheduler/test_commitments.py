"""The LEDGER folded, and what follows from its open entries (rules A, B, D and F of the commit protocol)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.decide.commitments import Kind, LedgerView, forget_lingering, holds, reached
from muster.decide.folding import fold
from muster.decide.settling import settle
from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Leader, Memory, Undoing
from muster.model.nodes import Node
from muster.model.pods import Phase, Pod, Request
from muster.model.units import GangKey, MilliCpu, NodeName, PodUid, RoleName, Sequence

GANG = GangKey("ns/gang")
NODES = {NodeName(name): Node(name=NodeName(name)) for name in ("n1", "n2")}


def slot(number: int, node: str = "n1") -> Slot:
    return Slot(
        uid=PodUid(f"u{number}"),
        pod=f"p{number}",
        role=RoleName("w"),
        node=NodeName(node),
        request=Request(cpu=MilliCpu(1000)),
    )


def pod(number: int, **fields: object) -> Pod:
    return msgspec.structs.replace(Pod(namespace="ns", name=f"p{number}", uid=PodUid(f"u{number}")), **fields)


def commit(*entries: object, epoch: int = 1) -> Commit:
    return Commit(epoch=Sequence(epoch), identity="me", entries=entries, at=5.0)


def led(*commits: Commit) -> LedgerView:
    """A view after our leader entry at sequence 1 and these commits from sequence 2 on."""
    view = fold(LedgerView(), Sequence(1), commit(Leader(identity="me", lease_transitions=1), epoch=0))
    for number, one in enumerate(commits, start=2):
        view = fold(view, Sequence(number), one)
    return view


BIND = commit(Bind(gang=GANG, gang_uid="g", slots=(slot(1), slot(2, "n2"))))


def by_uid(*pods: Pod) -> dict[PodUid, Pod]:
    return {one.uid: one for one in pods}


def test_a_commit_of_a_deposed_leader_changes_nothing_and_is_counted():
    view = led(commit(Leader(identity="other", lease_transitions=2), epoch=0))
    after = fold(view, Sequence(3), BIND)
    assert (after.open, after.refused, after.sequence) == ({}, 1, 3)


def test_a_commit_that_was_applied_already_changes_nothing():
    view = led(BIND)
    assert fold(view, Sequence(2), BIND) is view


def test_memory_is_the_last_one_written():
    view = led(commit(Memory(core="c", value={"a": 1})), commit(Memory(core="c", value={"a": 2})))
    assert view.memory == {"c": {"a": 2}}


@pytest.mark.parametrize(
    ("pods", "outcome"),
    [
        pytest.param(
            by_uid(pod(1, node=NodeName("n1")), pod(2, node=NodeName("n2"))), "close", id="all bound: it closes"
        ),
        pytest.param(
            by_uid(pod(1, node=NodeName("n1"), phase=Phase.SUCCEEDED), pod(2, node=NodeName("n2"))),
            "close",
            id="a bound member that has ended counts as bound",
        ),
        pytest.param(
            by_uid(pod(1, node=NodeName("n1")), pod(2, node=NodeName("n1"))),
            "close",
            id="a member that somebody bound elsewhere needs nothing more from us",
        ),
        pytest.param(
            by_uid(pod(1, node=NodeName("n1")), pod(2)), "wait", id="one still waits: it is bound, nothing closes"
        ),
        pytest.param(
            by_uid(pod(1, node=NodeName("n1"))), "POD_GONE", id="a member that is gone undoes what is not bound"
        ),
        pytest.param(
            by_uid(pod(1, node=NodeName("n1")), pod(2, phase=Phase.FAILED)),
            "POD_GONE",
            id="a member that ended without being bound counts as gone",
        ),
    ],
)
def test_a_bind_entry(pods, outcome):
    steps = settle(led(BIND), pods, NODES, freshness="7")
    match outcome:
        case "close":
            assert steps.entries == (Close(gang=GANG, entry=Sequence(2), outcome="bound", freshness="7"),)
            assert not steps.binds
        case "wait":
            assert not steps.entries
            assert [one.uid for _, one in steps.binds] == ["u2"]
        case reason:
            (undoing,) = steps.entries
            assert isinstance(undoing, Undoing)
            assert (undoing.reason, [one.uid for one in undoing.slots]) == (reason, ["u2"])


def test_a_member_on_a_node_that_vanished_counts_as_unbound():
    pods = by_uid(pod(1, node=NodeName("n1")), pod(2, node=NodeName("n2")))
    (undoing,) = settle(led(BIND), pods, {NodeName("n1"): NODES[NodeName("n1")]}, freshness="7").entries
    assert (undoing.reason, [one.uid for one in undoing.slots]) == ("NODE_GONE", ["u2"])


def test_an_overdue_entry_undoes_only_what_is_not_bound():
    pods = by_uid(pod(1, node=NodeName("n1")), pod(2))
    (undoing,) = settle(led(BIND), pods, NODES, freshness="7", overdue=[GANG]).entries
    assert (undoing.reason, [one.uid for one in undoing.slots]) == ("BIND_TIMEOUT", ["u2"])


def test_a_refused_binding_undoes_with_what_the_api_server_said():
    pods = by_uid(pod(1, node=NodeName("n1")), pod(2))
    (undoing,) = settle(led(BIND), pods, NODES, freshness="7", failed={PodUid("u2"): "forbidden"}).entries
    assert undoing.reason == "BIND_REFUSED"
    assert "forbidden" in undoing.message


UNDO = commit(Undoing(gang=GANG, gang_uid="g", slots=(slot(1),), reason="BIND_TIMEOUT", freshness="7"))


@pytest.mark.parametrize(
    ("pods", "done"),
    [
        pytest.param({}, True, id="gone: done"),
        pytest.param(by_uid(pod(1, fence=3)), True, id="unbound and touched under this entry: done"),
        pytest.param(
            by_uid(pod(1, fence=2)), False, id="unbound with an older fence: a Binding may still be on its way"
        ),
        pytest.param(by_uid(pod(1, node=NodeName("n1"), fence=3)), False, id="bound: it has to be evicted"),
        pytest.param(
            by_uid(pod(1, node=NodeName("n1"), terminating=True)), False, id="leaving: it still holds its room"
        ),
        pytest.param(by_uid(pod(1, node=NodeName("n1"), phase=Phase.FAILED)), True, id="ended: done"),
    ],
)
def test_an_undoing_entry(pods, done):
    steps = settle(led(BIND, UNDO), pods, NODES, freshness="9")
    if done:
        assert steps.entries == (Close(gang=GANG, entry=Sequence(3), outcome="undone", freshness="9"),)
    else:
        assert not steps.entries
        assert [one.uid for _, one in steps.undos] == ["u1"]


def test_slots_that_an_undoing_left_out_are_held_until_the_reader_has_seen_them_bound():
    view = led(BIND, UNDO)
    assert {hold.uid for hold in holds(view, by_uid(pod(1), pod(2)))} == {"u1", "u2"}
    assert {hold.uid for hold in holds(forget_lingering(view, "7"), by_uid(pod(1), pod(2)))} == {"u1"}


def test_a_closed_entry_is_held_until_the_pod_view_reached_the_freshness_it_names():
    view = led(BIND, commit(Close(gang=GANG, entry=Sequence(2), outcome="bound", freshness="10")))
    behind = by_uid(pod(1), pod(2))
    assert {hold.uid for hold in holds(forget_lingering(view, "9"), behind)} == {"u1", "u2"}
    assert holds(forget_lingering(view, "10"), behind) == ()


def test_a_hold_keeps_its_request_when_the_pod_is_gone():
    (hold, _) = holds(led(BIND), {})
    assert hold.request.cpu == 1000


def test_a_close_of_another_entry_closes_nothing():
    view = led(BIND, commit(Close(gang=GANG, entry=Sequence(1), outcome="bound", freshness="10")))
    assert view.open[GANG].kind is Kind.BIND


@pytest.mark.parametrize(
    ("have", "want", "expected"),
    [("", "", True), ("", "5", False), ("5", "5", True), ("9", "10", False), ("10", "9", True)],
)
def test_freshness_compares_as_numbers(have, want, expected):
    assert reached(have, want) is expected


@st.composite
def histories(draw):
    """Entries in an order a correct leader may append, and a pod view that lags behind the cluster."""
    commits = [BIND]
    where = {1: None, 2: None}
    for _ in range(draw(st.integers(0, 6))):
        step = draw(st.sampled_from(["bind 1", "bind 2", "undo", "close"]))
        if step.startswith("bind"):
            where[int(step[-1])] = NodeName("n1" if step[-1] == "1" else "n2")
        elif step == "undo":
            left = tuple(one for one in (slot(1), slot(2, "n2")) if where[int(one.uid[1])] is None)
            if left:
                commits.append(commit(Undoing(gang=GANG, gang_uid="g", slots=left, reason="X", freshness="50")))
    return commits, where


@given(histories(), st.sets(st.sampled_from([1, 2])))
def test_room_that_an_open_entry_promised_is_held_or_seen_used(history, shown):
    """Whatever the reader has seen of the binds, no slot of an entry is ever both unheld and not shown bound."""
    commits, where = history
    view = led(*commits)
    seen = by_uid(*(pod(number, node=where[number] if number in shown else None) for number in where))
    held = {hold.uid for hold in holds(view, seen)}
    for one in (slot(1), slot(2, "n2")):
        assert one.uid in held or seen[one.uid].node == one.node
