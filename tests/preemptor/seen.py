"""What a test saw of a line while it ran: every state of every pod, every LEDGER entry, Events."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from muster.bus.ledger import Ledger
from muster.decide.commitments import LedgerView
from muster.decide.folding import fold_all
from muster.kube.writer import FENCE_ANNOTATION
from muster.model.ledger import Bind, Close, Entry, Plan, Withdrawing


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A pod at one moment; `seen_at` in Unix seconds."""

    uid: str
    annotations: dict[str, str]
    terminating: bool
    node: str
    phase: str
    gone: bool
    seen_at: float

    @property
    def fence(self) -> int:
        return int(self.annotations.get(FENCE_ANNOTATION, 0))


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry and its sequence."""

    sequence: int
    entry: Entry


class Read:
    """The LEDGER: its fold, and its entries in order."""

    def __init__(self) -> None:
        self.view = LedgerView()
        self.entries: list[Committed] = []

    async def follow(self, bus) -> None:
        async for batch in Ledger(bus).batches():
            self.view = fold_all(LedgerView() if batch.reset else self.view, batch.commits)
            for sequence, commit in batch.commits:
                self.entries += [Committed(sequence=sequence, entry=entry) for entry in commit.entries]

    def of(self, kind: type) -> list[Committed]:
        return [one for one in self.entries if isinstance(one.entry, kind)]

    @property
    def plans(self) -> list[Committed]:
        return self.of(Plan)

    @property
    def withdrawn(self) -> list[Committed]:
        return self.of(Withdrawing)

    def binds(self, gang: str) -> list[Committed]:
        return [one for one in self.of(Bind) if one.entry.gang == gang]

    def closes(self, gang: str) -> list[str]:
        return [one.entry.outcome for one in self.of(Close) if one.entry.gang == gang]


class Seen:
    """See the module."""

    def __init__(self, line) -> None:
        self.line = line
        self.pods: dict[str, list[Moment]] = {}
        self.ledger = Read()
        line.sim.store.subscribe("pods", self._pod)

    def _pod(self, kind: str, obj: dict[str, Any], _old: Any) -> None:
        metadata = obj["metadata"]
        self.pods.setdefault(metadata["name"], []).append(
            Moment(
                uid=metadata["uid"],
                annotations=dict(metadata.get("annotations") or {}),
                terminating="deletionTimestamp" in metadata,
                node=obj["spec"].get("nodeName", ""),
                phase=(obj.get("status") or {}).get("phase", ""),
                gone=kind == "DELETED",
                seen_at=time.time(),
            )
        )

    def events(self) -> list[dict[str, Any]]:
        """Every Event of the cluster, as of now."""
        return self.line.sim.store.list("events")

    def evicted(self) -> set[str]:
        """Names of pods that were being deleted at some time."""
        return {name for name, moments in self.pods.items() if any(one.terminating or one.gone for one in moments)}


@contextlib.asynccontextmanager
async def watched(line):
    seen = Seen(line)
    task = asyncio.create_task(seen.ledger.follow(line.bus))
    try:
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
