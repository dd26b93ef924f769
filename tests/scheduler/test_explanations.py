"""An explanation as it is answered: what an open plan means for the queue's line, and how all of it is printed."""

import msgspec

from muster.bus.queries import ExplainReply, Fact, Moment, QueueRow
from muster.cli.explain import WIDTH, text
from muster.decide.explaining.details import Details
from muster.model.workloads import PodGroup, PriorityClass
from muster.scheduler.explanations import Subject, reply_of
from muster.scheduler.queries import GangRow
from muster.view.world import World
from tests.decide.build import CARD, gang, role

LEAVES = 1_700_000_000.0
ROW = QueueRow(name="prod", used=8 * CARD, deserved=48 * CARD, capability=64 * CARD)


def subject(**changes):
    one = gang("llm", role(count=4, gpus=8), queue="prod", rack="rack")
    found = Subject(
        gang=one,
        row=GangRow(gang="ns/llm", job="ns/llm-7f3c", queue="prod", state="Waiting", code="NOT_ENOUGH_ROOM", message="m", position=2),
        reason=None,
        queue=ROW,
        history=(Moment(at=LEAVES, text="waits: not enough room"),),
    )  # fmt: skip
    return found._replace(**changes)


def facts(found, details=Details(), world=None):  # noqa: B008  (frozen)
    reply = reply_of(found, details, world or World())
    return {fact.label: fact.text for fact in reply.facts}, reply


def test_who_leaves_for_it_stands_in_the_line_of_its_queue():
    told, _ = facts(subject(for_it="2 pods of EVAL are asked to leave until 15:42:00 (in 25 s)"))
    assert told["queue"] == (
        "prod uses 8 of 48 deserved cards (64 cap): entitled, so 2 pods of EVAL are asked to leave until 15:42:00 (in 25 s)"
    )


def test_what_plans_mean_for_a_job_stands_in_lines_of_its_own():
    told, _ = facts(subject(plans=(("must leave", "asked to leave"), ("observed", ""))))
    assert told["must leave"] == "asked to leave"
    assert "observed" not in told


def test_without_a_plan_the_claim_of_the_queue_is_told():
    told, _ = facts(subject(), Details(entitled="entitled, so somebody may be asked to leave for it"))
    assert (
        told["queue"] == "prod uses 8 of 48 deserved cards (64 cap): entitled, so somebody may be asked to leave for it"
    )


def test_what_is_not_known_is_left_out():
    told, _ = facts(subject())
    assert list(told) == ["asks", "queue", "priority"]


def test_the_priority_that_counts_and_where_it_comes_from():
    world = World()
    world.podgroups["ns/llm"] = PodGroup(namespace="ns", name="llm", uid="u", priority_class="usual")
    one = msgspec.structs.replace(subject().gang, priority=50, priority_class="usual")
    told, _ = facts(subject(gang=one), world=world)
    assert told["priority"] == "50: its PodGroup names the class usual, which does not exist"
    world.priority_classes["usual"] = PriorityClass(name="usual", value=50, global_default=True)
    told, _ = facts(subject(gang=one), world=world)
    assert told["priority"] == "50 (class usual, which is the cluster's default)"


def test_an_explanation_is_printed_100_wide_with_what_goes_on_indented():
    best = "rack-b: room for 3 of 4 pods; gpu-node-09 is held by 2 jobs of train-dev (5 cards, lower priority, checkpoint 3 min ago)"
    reply = ExplainReply(
        job="team-a/llm-7f3c",
        state="Waiting",
        queue="prod",
        code="NOT_ENOUGH_ROOM",
        message="asks 4 pods × 8 cards; 3 of 4 pods fit now",
        position=2,
        estimated_start=1000.0 + 840.0,
        facts=(
            Fact(label="asks", text="4 pods × 8 cards in one rack, all together"),
            Fact(label="best fit", text=best),
        ),
    )
    lines = text(reply, now=1000.0).splitlines()
    assert lines[:2] == [
        "team-a/llm-7f3c waits for room (2nd in prod, about 14 min)",
        "  asks      4 pods × 8 cards in one rack, all together",
    ]
    assert lines[2].startswith(
        "  best fit  rack-b: room for 3 of 4 pods; gpu-node-09 is held by 2 jobs of train-dev (5 cards,"
    )
    assert lines[3].startswith(" " * 12)
    assert all(len(line) <= WIDTH for line in lines)
