"""PodDisruptionBudgets as the model has them, and which pods they cover."""

import msgspec
import pytest

from muster.decide.budgets import Budgets, budgets_of, covers
from muster.decide.projection import project_budget
from muster.kube.decoding import KINDS
from muster.model.budgets import Budget
from muster.model.pods import Phase, Pod, Requirement

APP = Requirement(key="app", operator="In", values=("x",))


def projected(spec: dict, status: dict | None = None, *, generation: int = 2) -> Budget:
    document = {
        "metadata": {"namespace": "a", "name": "keep", "generation": generation},
        "spec": spec,
        "status": status or {},
    }
    return project_budget(msgspec.convert(document, KINDS["poddisruptionbudgets.policy"].struct))


SELECTOR = {"matchLabels": {"app": "x"}}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        (
            {"selector": SELECTOR},
            {"observedGeneration": 2, "disruptionsAllowed": 3},
            {"selector": (APP,), "allowed": 3},
        ),
        ({"selector": SELECTOR}, {"observedGeneration": 1, "disruptionsAllowed": 3}, {"selector": (APP,)}),
        ({"selector": SELECTOR}, None, {"selector": (APP,)}),
        ({"selector": {}}, {"observedGeneration": 2, "disruptionsAllowed": 1}, {"allowed": 1}),
        ({}, {"observedGeneration": 2, "disruptionsAllowed": 1}, {"allowed": 1, "selects_nothing": True}),
        (
            {"selector": SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            {"observedGeneration": 2},
            {"selector": (APP,), "unready_are_free": True},
        ),
    ],
    ids=[
        "counted",
        "counted before it was changed",
        "not counted yet",
        "an empty selector",
        "no selector",
        "pods that are not ready are free",
    ],
)
def test_a_budget_as_the_model_has_it(spec, status, expected):
    assert projected(spec, status) == Budget(namespace="a", name="keep", **expected)


def pod(name: str, *, namespace: str = "a", labels: dict[str, str] | None = None, node: str | None = "n") -> Pod:
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"u-{name}",
        scheduler_name="muster",
        gang="a/g",
        node=node,
        phase=Phase.RUNNING,
        labels=labels if labels is not None else {"app": "x"},
    )


@pytest.mark.parametrize(
    ("budget", "covered"),
    [
        ({"selector": (APP,)}, True),
        ({}, True),
        ({"selects_nothing": True}, False),
        ({"selector": (APP,), "namespace": "b"}, False),
        ({"selector": (Requirement(key="app", operator="NotIn", values=("x",)),)}, False),
    ],
    ids=["its labels", "every pod of the namespace", "none", "another namespace", "all but these labels"],
)
def test_which_pods_a_budget_covers(budget, covered):
    assert covers(Budget(**{"namespace": "a", "name": "keep", **budget}), pod("p")) is covered


def test_pods_that_come_change_and_go_are_followed_as_if_all_were_looked_at_anew():
    pods: dict[str, Pod] = {}
    budgets = Budgets(pods, lambda one: one.node is not None)
    keep = Budget(namespace="a", name="keep", selector=(APP,), allowed=1)

    def change(after: Pod | None, key: str) -> tuple[str, ...]:
        before = pods.get(key)
        budgets.change_pod(before, after)
        if after is None:
            pods.pop(key)
        else:
            pods[key] = after
        (found,) = budgets.all()
        assert budgets.all() == budgets_of([keep], [one for one in pods.values() if one.node is not None])
        return found.pods

    budgets.change("a/keep", keep)
    assert change(pod("p", node=None), "a/p") == ()
    assert change(pod("p"), "a/p") == ("u-p",)
    assert change(pod("q"), "a/q") == ("u-p", "u-q")
    assert change(pod("q", labels={}), "a/q") == ("u-p",)
    assert change(pod("r", namespace="b"), "b/r") == ("u-p",)
    assert change(None, "a/p") == ()
    budgets.change("a/keep", None)
    assert budgets.all() == ()
