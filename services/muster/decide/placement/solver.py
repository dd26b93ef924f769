"""The CP-SAT call itself, behind a protocol so that a shell can put its own (one that it can stop) in its place.

Parameters and the way protos are built matter as much as the model (one worker, no presolve, full linearisation, a complete
feasible hint; index-built protos are about nine times faster). The deterministic budget decides, so that the same snapshot
gives the same answer; the wall limit is a net.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from muster.model.policy import Solver


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


def parameters_of(policy: Solver) -> Any:
    """The parameters of every solve."""
    from ortools.sat.python.cp_model_helper import SatParameters

    parameters = SatParameters()
    parameters.num_workers = 1
    parameters.cp_model_presolve = False
    parameters.linearization_level = 2
    parameters.random_seed = 1
    parameters.max_deterministic_time = policy.deterministic_seconds
    parameters.max_time_in_seconds = policy.wall_seconds
    return parameters


def linear_model(
    bounds: Sequence[tuple[int, int]],
    rows: Sequence[tuple[Sequence[int], Sequence[int], int, int]],
    cost: Mapping[int, int],
    hints: Sequence[int],
) -> Any:
    """The proto of: minimise cost over integer variables within bounds and rows; None when ortools is not installed."""
    try:
        from ortools.sat.python import cp_model_helper as helper
    except ImportError:
        return None
    model = helper.CpModelProto()
    protos: dict[tuple[int, int], Any] = {}
    for pair in bounds:
        if pair not in protos:
            proto = helper.IntegerVariableProto()
            proto.domain.extend(list(pair))
            protos[pair] = proto
    model.variables.extend([protos[pair] for pair in bounds])
    for variables, factors, least, most in rows:
        constraint = helper.ConstraintProto()
        linear = constraint.linear
        linear.vars.extend(list(variables))
        linear.coeffs.extend(list(factors))
        linear.domain.extend([least, most])
        model.constraints.append(constraint)
    if cost:
        model.objective.vars.extend(list(cost))
        model.objective.coeffs.extend(list(cost.values()))
    model.solution_hint.vars.extend(list(range(len(hints))))
    model.solution_hint.values.extend(list(hints))
    return model
