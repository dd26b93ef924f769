"""How much the engine may think: deterministic seconds, with a wall-clock net.

Deterministic seconds count the solver's own steps, so the same snapshot has the same answer on any machine (one of them is
about four seconds of wall time on two shared cores). Building a problem is charged by its variables. The net is the sum of the
wall times that the solver's responses tell: the core has no clock, and a recorded response replays exactly.
"""

from typing import Any

from muster.decide.placement.solver import parameters_of
from muster.model.policy import Solver

PER_PROBLEM = 0.0005
PER_VARIABLE = 2e-6
RELATIVE_GAP = 1e-4
FULL_FROM_PODS = 400
"""Smaller batches get less, in proportion; they are decided more often and have less to gain."""
LEAST_PART = 0.1
LEAST_STEP = 0.004


class Budget:
    """What is left of one decision's thinking."""

    def __init__(self, policy: Solver, *, pods: int = FULL_FROM_PODS) -> None:
        self.policy = policy
        part = min(1.0, max(LEAST_PART, pods / FULL_FROM_PODS))
        self.deterministic = policy.batch_deterministic_seconds * part
        self.wall = policy.wall_seconds
        self.solves = 0

    def lasts(self) -> bool:
        """Whether another problem may be begun."""
        return self.deterministic > 0 and self.wall > 0

    def parameters(self, *, ahead: int = 1) -> Any:
        """Parameters of the next solve, when so many are to come with it: most end early, so each may take twice its part."""
        parameters = parameters_of(self.policy)
        part = max(LEAST_STEP, 2 * self.deterministic / ahead)
        parameters.max_deterministic_time = max(1e-4, min(self.deterministic, self.policy.batch_step_seconds, part))
        parameters.max_time_in_seconds = max(1e-3, self.wall)
        parameters.relative_gap_limit = RELATIVE_GAP
        return parameters

    def spend(self, response: Any, variables: int) -> None:
        """Charge one problem."""
        self.solves += 1
        self.deterministic -= PER_PROBLEM + variables * PER_VARIABLE
        if response is not None:
            self.deterministic -= float(response.deterministic_time)
            self.wall -= float(response.wall_time)
