"""Idle nodes from end to end: the real autoscaler beside the other services, on the simulated cluster and a real NATS server."""

import contextlib
import re

import msgspec
from nats.js.errors import NotFoundError

from muster.bus import subjects
from muster.bus.envelope import decode
from muster.bus.messages import Decision
from muster.bus.proposals import ProposalReply, UncordonProposal
from muster.cli.get import _node_state
from muster.decide.projection.metadata import CORDON_OWNER, CORDON_REASON, REMOVABLE
from muster.model.policy import Actions, Idle, Policy
from tests.line import Line
from tests.nats_fixtures import eventually

QUICK = Idle(window=1.0, min_up=0.0, min_down=0.0, settle=0.0, removal_grace=1.0, quantile=0.0)
SERVICES = ("watcher", "scheduler", "autoscaler")


async def nodes(line):
    return {node.metadata.name: node for node in await line.writer.list("nodes")}


def removable(node) -> bool:
    return node.spec.unschedulable and node.metadata.labels.get(REMOVABLE) == "true"


async def test_idle_nodes_are_cordoned_and_labelled_and_come_back_for_a_gang_that_needs_them(nats_server):
    policy = Policy(actions=Actions(cordon="act"), idle=QUICK)
    async with Line(nats_server.url, cluster="3x8", services=SERVICES, policy=policy) as line:
        await line.create_queue("default")
        await line.create_gang("small", pods=1, cards=2)

        async def two_are_removable():
            return sum(removable(node) for node in (await nodes(line)).values()) == 2

        await eventually(two_are_removable)
        there = await nodes(line)
        busy = next(name for name, node in there.items() if not removable(node))
        away = next(node for node in there.values() if removable(node))
        assert (await line.pods())[0].spec.node_name == busy
        assert away.metadata.annotations[CORDON_OWNER] == "muster"
        assert "nobody waits for its 8 cards" in away.metadata.annotations[CORDON_REASON]

        async def told():
            rows = {row.name: row for row in (await line.client.nodes()).nodes}
            return rows if [row.removable for row in rows.values()].count(True) == 2 else None

        rows = await eventually(told)
        assert _node_state(rows[busy]) == "Ready"
        assert re.fullmatch(r"idle for \d+ s, removable", _node_state(rows[away.metadata.name]))

        await line.create_gang("large", pods=2, cards=8)

        async def all_run():
            pods = await line.pods()
            return len(pods) == 3 and all(pod.status.phase == "Running" for pod in pods)

        await eventually(all_run)
        assert not any(node.spec.unschedulable or removable(node) for node in (await nodes(line)).values())


async def test_a_cordon_that_somebody_lifts_is_given_up(nats_server):
    policy = Policy(actions=Actions(cordon="act"), idle=msgspec.structs.replace(QUICK, min_up=3.0))
    async with Line(nats_server.url, cluster="1x8", services=SERVICES, policy=policy) as line:
        await line.create_queue("default")

        async def is_removable():
            return all(removable(node) for node in (await nodes(line)).values())

        await eventually(is_removable)
        (name,) = await nodes(line)
        await line.writer.merge_patch("nodes", None, name, {"spec": {"unschedulable": None}})

        async def is_back():
            node = (await nodes(line))[name]
            return not node.spec.unschedulable and REMOVABLE not in node.metadata.labels

        await eventually(is_back)
        # It stays open: whoever lifted the cordon is not worked against.
        assert CORDON_OWNER not in (await nodes(line))[name].metadata.annotations


async def test_observing_only_says_what_would_be_cordoned(nats_server):
    async with Line(nats_server.url, cluster="1x8", services=SERVICES, policy=Policy(idle=QUICK)) as line:
        await line.create_queue("default")
        (name,) = await nodes(line)

        async def told():
            with contextlib.suppress(NotFoundError):
                message = await line.bus.jetstream.get_last_msg("DECISIONS", subjects.decision_subject("cordon", name))
                return decode(Decision, message.data, message.headers or {})
            return None

        said = await eventually(told)
        assert (said.node, said.code) == (name, "WOULD_CORDON")
        assert "nobody waits for its 8 cards" in said.message
        assert not any(node.spec.unschedulable for node in (await nodes(line)).values())


async def test_a_node_comes_back_although_nobody_is_there_to_write_it(nats_server):
    """The autoscaler is gone for good while a node is cordoned: the leader gives it back itself, a little later."""
    policy = Policy(actions=Actions(cordon="act"), idle=QUICK)
    async with Line(nats_server.url, cluster="1x8", services=SERVICES, policy=policy) as line:
        await line.create_queue("default")

        async def is_cordoned():
            return all(node.spec.unschedulable for node in (await nodes(line)).values())

        await eventually(is_cordoned)
        await line.stop("autoscaler")
        (name,) = await nodes(line)
        reply = await line.bus.request(
            subjects.propose_subject("uncordon"),
            UncordonProposal(nodes=(name,), reason="FLOOR"),
            ProposalReply,
            seconds=30,
        )
        assert reply.committed

        async def is_open():
            return not (await nodes(line))[name].spec.unschedulable

        await eventually(is_open)
        await line.create_gang("small", pods=1, cards=2)
        await eventually(lambda: all_run(line))


async def all_run(line):
    return all(pod.status.phase == "Running" for pod in await line.pods())
