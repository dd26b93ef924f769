"""The solver that can be stopped: it answers as the direct call does, and not at all once it was asked to stop."""

from muster.decide.placement.solver import linear_model, parameters_of, solve_here
from muster.model.policy import Solver
from muster.scheduler.solving import StoppableSolver


def model():
    """The least x + 2y with x + y >= 3 and each at most 2."""
    return linear_model([(0, 2), (0, 2)], [((0, 1), (1, 1), 3, 4)], {0: 1, 1: 2}, [2, 1])


def test_it_answers_as_the_direct_call_does():
    parameters = parameters_of(Solver())
    answer = StoppableSolver()(model(), parameters)
    assert list(answer.solution) == list(solve_here(model(), parameters).solution) == [2, 1]


def test_after_a_stop_no_call_begins():
    solver = StoppableSolver()
    solver.request_stop()
    assert solver(model(), parameters_of(Solver())) is None
