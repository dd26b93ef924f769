"""What owners of jobs hear as Events, once."""

import pytest

from muster.controller.remarks import OLD_SECONDS, Remarks
from muster.decide.lifecycle.batch_jobs import with_evictions_ignored
from muster.decide.warnings import EVICT_AT
from muster.model.pods import Pod, Request, Shape
from muster.model.policy import Policy
from muster.model.workloads import Workload

NOW = 1_000_000.0
SPELT = {"muster.dev/expected-durations": "2h"}


def job(*, kind="job", scheduler="muster", marks=SPELT, template=None, created=NOW, **spec):
    pod = {"metadata": {"annotations": template or {}}, "spec": {"schedulerName": scheduler, "restartPolicy": "Never"}}
    body = {"template": pod} if kind == "job" else {"schedulerName": scheduler, "tasks": [{"template": pod}]}
    return Workload(
        kind=kind, namespace="a", name="j", uid="u", annotations=marks, created=created, spec={**body, **spec}
    )


@pytest.fixture
def heard():
    said = []
    remarks = Remarks(tell=said.append, wall=lambda: NOW)
    remarks.begin()

    def look(*jobs, warned=False):
        marks = {EVICT_AT: "x"} if warned else {}
        pods = [Pod(namespace="a", name="p", uid="p", shape=Shape(request=Request()), annotations=marks)]
        said.clear()
        for one in jobs:
            remarks.look(one, pods, policy=Policy())
        return [(one.reason, one.message) for one in said]

    return look


@pytest.mark.parametrize("kind", ["job", "vcjob"])
def test_a_misspelt_annotation_is_told_once_although_the_job_runs(heard, kind):
    told = "there is no annotation muster.dev/expected-durations; did you mean muster.dev/expected-duration?"
    assert heard(*[job(kind=kind)] * 5) == [("InvalidAnnotation", told)]
    assert heard(job(kind=kind, marks={}, template=SPELT)) == []
    other = {"muster.dev/max-waits": "2h"}
    assert len(heard(job(kind=kind, marks={}, template=other), job(kind=kind, marks={}, template=other))) == 1


def test_nothing_is_said_of_what_is_right_or_old_or_anothers(heard):
    assert heard(job(marks={"muster.dev/expected-duration": "2h"})) == []
    assert heard(job(created=NOW - OLD_SECONDS - 1)) == []
    assert heard(job(scheduler="default-scheduler")) == []


def test_what_an_eviction_costs_a_job_is_told_when_it_is_asked_to_leave(heard):
    plain = job(marks={}, backoffLimit=0)
    assert heard(plain) == []
    ((reason, message),) = heard(plain, plain, warned=True)
    assert reason == "EvictionCounts"
    assert "(backoffLimit 0)" in message
    spared = job(marks={}, **with_evictions_ignored(plain.spec))
    assert heard(spared, warned=True) == []
