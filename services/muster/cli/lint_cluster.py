"""What stands in a running cluster, for `muster lint --cluster`: STATE as every service reads it, and who waits."""

import asyncio
from typing import NamedTuple

import msgspec

from muster import client
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError, RequestRefusedError
from muster.bus.state import StateReader
from muster.cli.errors import CommandError
from muster.decide.linting_documents import surroundings_in
from muster.decide.linting_queues import Surroundings
from muster.model.policy import Policy
from muster.view.world import World

READ_SECONDS = 30.0


class Seen(NamedTuple):
    """The cluster, and where its policy is from."""

    surroundings: Surroundings
    policy_from: str
    policy_problem: str


async def seen_in(url: str, *, tenant: str, policy: Policy | None) -> Seen:
    """Everything of the cluster that is judged; with the policy in force when none is given.

    Raises:
        CommandError: STATE cannot be read within `READ_SECONDS`.
        BusError: NATS or the scheduler cannot be reached.
    """
    async with await connect_bus(url, name="muster-lint") as bus:
        muster = client.Muster(bus, tenant=tenant)
        world = World()
        reader = StateReader(bus)

        async def read() -> None:
            async for batch in reader.batches():
                if batch.reset:
                    world.clear()
                for change in batch.changes:
                    world.apply(change)
                if reader.ready:
                    return

        try:
            await asyncio.wait_for(read(), READ_SECONDS)
        except TimeoutError as error:
            raise CommandError(f"STATE could not be read within {READ_SECONDS:g} s: does a watcher run?") from error
        pending = {row.name: row.pending_gangs for row in (await muster.queues()).queues}
        where, problem = "the file", ""
        if policy is None:
            policy, where, problem = await _policy(muster)
    return Seen(
        surroundings_in(
            queues=world.queues.values(),
            priority_classes=world.priority_classes.values(),
            workloads=world.workloads.values(),
            podgroups=world.podgroups.values(),
            nodes=world.nodes.values(),
            pending=pending,
            policy=policy,
        ),
        where,
        problem,
    )


async def _policy(muster: client.Muster) -> tuple[Policy, str, str]:
    """The policy in force; the defaults when this tenant may not see it."""
    try:
        reply = await muster.policy()
        return msgspec.convert(reply.policy, Policy), reply.source or "its defaults", reply.problem
    except (RequestRefusedError, msgspec.ValidationError) as error:
        return Policy(), f"the defaults, since the one in force cannot be read: {error}", ""


__all__ = ["BusError", "Seen", "seen_in"]
