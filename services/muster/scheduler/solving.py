"""Runs the core in a thread, with a solver that can be stopped.

CP-SAT releases the GIL while it searches, so the event loop goes on. Two traps, both measured: a stop that comes before the
search has started is silently lost, so it is repeated until the call returns; and cancelling the waiting coroutine does not
stop the thread, so the stop must be asked for.
"""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from muster.decide.basis import Basis
from muster.decide.memory import CoreMemory
from muster.decide.scheduling import Decision, decide
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot

REPEAT_SECONDS = 0.01


class Decide(Protocol):
    """One decision of the core."""

    def __call__(
        self, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, basis: Basis
    ) -> Awaitable[Decision]:
        """What should happen now; the basis is this snapshot's."""
        ...


class StoppableSolver:
    """Carries out CP-SAT calls for the core (muster.decide.placement.solver.Solve)."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._solver: Any = None
        self._lock = threading.Lock()

    def __call__(self, model: Any, parameters: Any) -> Any:
        """Solve; None when a stop was asked for before it began, or when ortools is not installed."""
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            return None
        solver = cp_model.CpSolver()
        solver.parameters.copy_from(parameters)
        with self._lock:
            if self._stopped.is_set():
                return None
            self._solver = solver
        try:
            solver.solve(cp_model.CpModel(model))
            return solver.response_proto
        finally:
            with self._lock:
                self._solver = None

    def request_stop(self) -> None:
        """Ask the present call to stop, and let no further one begin."""
        self._stopped.set()
        with self._lock:
            if self._solver is not None:
                self._solver.stop_search()


async def decide_in_thread(
    snapshot: Snapshot,
    memory: CoreMemory,
    now: float,
    policy: Policy,
    *,
    basis: Basis | None = None,
    run: Callable[..., Decision] = decide,
) -> Decision:
    """One decision off the event loop; a cancellation stops the solver and waits for the thread."""
    solver = StoppableSolver()
    thread = asyncio.create_task(asyncio.to_thread(run, snapshot, memory, now, policy, solve=solver, basis=basis))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        while not thread.done():
            solver.request_stop()
            await asyncio.wait({thread}, timeout=REPEAT_SECONDS)
        raise


class Decider:
    """The decisions of one leadership, each in its thread.

    After the first, what is in memory is a cluster that lasts: the garbage collector need not look through it again and again,
    which would hold up every hundredth decision or so.
    """

    def __init__(self) -> None:
        self._decided = False

    async def __call__(
        self, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, basis: Basis
    ) -> Decision:
        """See `decide_in_thread`."""
        decision = await decide_in_thread(snapshot, memory, now, policy, basis=basis)
        if not self._decided:
            self._decided = True
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        return decision
