"""Taking over (rules A, C and H of the commit protocol): what a new leader does before its first round.

It has appended its leader entry and STATE is ready. Now it raises the fence of every uid that an open entry names, whatever
STATE shows; when the LEDGER is of a new incarnation, of all our unbound pods, since the lost LEDGER may have named any.
"""

import asyncio
import time

import structlog

from muster.decide.commitments import LedgerView
from muster.decide.memory import CORE, CoreMemory
from muster.model.ledger import Memory
from muster.model.policy import Policy
from muster.model.units import PodUid, split_key
from muster.scheduler.book import Book, Deposed
from muster.scheduler.executor import Executor, Outcome, Result
from muster.scheduler.reporting import Reporter
from muster.scheduler.world import World

INCARNATION = "incarnation"
"""Name of the note that says for which incarnation all unbound pods were touched."""


def saved_memory(view: LedgerView) -> CoreMemory:
    """The core's memory as the last leader left it."""
    saved = view.memory.get(CORE)
    return CoreMemory() if saved is None else CoreMemory.from_data(saved)


async def take_over(
    *,
    world: World,
    book: Book,
    executor: Executor,
    reporter: Reporter,
    policy: Policy,
    incarnation: int,
    log: structlog.stdlib.BoundLogger,
) -> None:
    """Touch what a former leader may still have Bindings under way for.

    Raises:
        Deposed: a newer leader stands.
    """
    new_ledger = book.view.memory.get(INCARNATION, {}).get("touched") != incarnation
    named: dict[PodUid, tuple[str, str]] = {
        slot.uid: (split_key(entry.gang)[0], slot.pod) for entry in book.view.open.values() for slot in entry.slots
    }
    if new_ledger:
        named.update(
            (pod.uid, (pod.namespace, pod.name))
            for pod in world.pods.values()
            if pod.scheduler_name in policy.scheduler_names and pod.node is None and not pod.finished
        )
    limit = asyncio.Semaphore(policy.bind_concurrency)

    async def touch(uid: PodUid, namespace: str, name: str) -> None:
        async with limit:
            await _touch_until_done(namespace, name, uid=uid, book=book, executor=executor, reporter=reporter)

    await asyncio.gather(*(touch(uid, *where) for uid, where in named.items()))
    if new_ledger:
        note = Memory(core=INCARNATION, value={"touched": incarnation})
        while await book.append((note,), expected=book.view.sequence, at=time.time()) is None:
            await book.caught_up()
    log.info("took over", epoch=book.token, open_entries=len(book.view.open), touched=len(named), new_ledger=new_ledger)


async def _touch_until_done(
    namespace: str, name: str, *, uid: PodUid, book: Book, executor: Executor, reporter: Reporter
) -> None:
    while True:
        if book.deposed.is_set():
            raise Deposed
        began = time.monotonic()
        result = await executor.touch(namespace, name, uid=uid, token=book.token)
        if not isinstance(result, Result):
            return
        reporter.acted("touch", result, time.monotonic() - began)
        if result.outcome is Outcome.GONE:
            return
        if result.outcome is Outcome.SUPERSEDED:
            await book.caught_up()
            if book.deposed.is_set():
                raise Deposed
            raise FenceError(f"pod {namespace}/{name}: {result.message}, yet no newer leader stands in the LEDGER")
        await asyncio.sleep(result.retry_after or 0.5)


class FenceError(RuntimeError):
    """A pod carries a fence that no LEDGER we know gave: the store was rolled back. It must be declared lost (rule H)."""
