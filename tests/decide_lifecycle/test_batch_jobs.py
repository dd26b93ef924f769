"""What evictions cost a batch Job, and what spares it."""

import pytest

from muster.decide.lifecycle.batch_jobs import RULE, evictions_count, what_evictions_cost, with_evictions_ignored
from muster.decide.linting import lint_document
from muster.model.policy import Policy


def spec(*, restart="Never", policy=None, **more):
    return {
        "template": {"spec": {"restartPolicy": restart}},
        **({"podFailurePolicy": policy} if policy else {}),
        **more,
    }


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        pytest.param(None, True, id="without a policy every failure counts"),
        pytest.param({"rules": [dict(RULE)]}, False, id="disruptions are ignored"),
        pytest.param({"rules": [{"action": "FailJob", "onExitCodes": {}}, dict(RULE)]}, False, id="by a later rule"),
        pytest.param({"rules": [{**RULE, "action": "Count"}, dict(RULE)]}, True, id="the first rule about it decides"),
        pytest.param({"rules": [{"action": "Ignore", "onExitCodes": {}}]}, True, id="exit codes are something else"),
        pytest.param({"rules": ["nonsense", None]}, True, id="what is no rule says nothing"),
    ],
)
def test_whether_an_eviction_takes_a_retry(policy, count):
    assert evictions_count(spec(policy=policy)) is count


def test_a_job_that_we_make_ignores_evictions_unless_its_owner_or_kubernetes_says_otherwise():
    made = with_evictions_ignored(spec(backoffLimit=2))
    assert made["podFailurePolicy"] == {"rules": [RULE]}
    assert not evictions_count(made)
    own = spec(policy={"rules": [{**RULE, "action": "Count"}]})
    assert with_evictions_ignored(own) == own
    again = spec(restart="OnFailure")
    assert with_evictions_ignored(again) == again


def test_the_cost_is_told_with_its_cure():
    assert what_evictions_cost(spec(backoffLimit=0)) == (
        "each of its pods that has to leave for another job counts as a failure (backoffLimit 0); "
        "podFailurePolicy with action Ignore on the condition DisruptionTarget spares it"
    )
    assert what_evictions_cost(spec(restart="OnFailure")).endswith("spares it, which needs restartPolicy: Never")
    assert "backoffLimit 6" in what_evictions_cost(spec())
    assert what_evictions_cost(with_evictions_ignored(spec())) == ""


@pytest.mark.parametrize(
    ("scheduler", "policy", "told"),
    [
        pytest.param("muster", None, ["spec.podFailurePolicy"], id="ours that would pay for evictions"),
        pytest.param("muster", {"rules": [dict(RULE)]}, [], id="ours that would not"),
        pytest.param("default-scheduler", None, [], id="another scheduler's"),
    ],
)
def test_lint_tells_what_evictions_will_cost(scheduler, policy, told):
    body = spec(policy=policy)
    body["template"]["spec"] |= {"schedulerName": scheduler, "containers": [{"name": "c", "image": "x:1"}]}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": body}
    assert [one.field for one in lint_document(document, policy=Policy())] == told
