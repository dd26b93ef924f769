"""The CP-SAT call itself, behind a protocol so that a shell can put its own (one that it can stop) in its place."""

from typing import Any, Protocol


class Solve(Protocol):
    """Solves a model: `CpModelProto` and `SatParameters` in, `CpSolverResponse` out; None when it cannot."""

    def __call__(self, model: Any, parameters: Any) -> Any:
        """Solve, or return None when no solver is installed or it was stopped before an answer."""


def solve_here(model: Any, parameters: Any) -> Any:
    """Call CP-SAT directly, in this thread; None when ortools is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return None
    solver = cp_model.CpSolver()
    solver.parameters.copy_from(parameters)
    solver.solve(cp_model.CpModel(model))
    return solver.response_proto


def no_solver(model: Any, parameters: Any) -> Any:  # noqa: ARG001 - the protocol's names
    """Never an answer: the greedy alone decides."""
    return None
