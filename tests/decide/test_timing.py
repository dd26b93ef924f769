"""Times of gangs: what is read, from where, and what is said of what cannot be read."""

import pytest

from muster.decide.gangs import build_snapshot
from muster.decide.linting import lint_document
from muster.decide.timing import owner_of, timing_problems
from muster.model.durations import DurationError, format_duration, parse_duration, parse_moment
from muster.model.gangs import Timing
from muster.model.pods import Owner, Phase, Pod
from muster.model.policy import Policy
from muster.model.workloads import PodGroup, Workload

JOB = Owner(api_version="batch/v1", kind="Job", name="train-17", uid="w")


def group(**more):
    return PodGroup(namespace="a", name="g", uid="u", **more)


def pod(name="p", **more):
    return Pod(namespace="a", name=name, uid=f"uid-{name}", scheduler_name="muster", gang="a/g", **more)


def timing(groups, pods, workloads=()):
    (gang,) = build_snapshot((), pods, groups, (), workloads, (), (), (), Policy()).gangs
    return gang.timing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2h30m", 9000),
        ("1h0m0.5s", 3600.5),
        ("300ms", 0.3),
        ("1.5h", 5400),
        ("90", 90),
        (7, 7),
        (".5", 0.5),
    ],
    ids=str,
)
def test_go_durations_and_plain_seconds_are_read(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("30min", "did you mean 30m?"),
        ("2 hours", "did you mean 2h?"),
        ("1d", "did you mean 24h?"),
        ("2H 15 minutes", "did you mean 2h15m?"),
        ("1:30:00", "did you mean 1h30m?"),
        ("PT2H", "did you mean 2h?"),
        ("P1DT2H", "did you mean 26h?"),
        ("-5m", "is below 0"),
        ("soon", "write 90s, 30m, 2h30m or a number of seconds"),
        ("", "write 90s"),
        ("1h30", "write 90s"),
    ],
    ids=lambda text: text or "empty",
)
def test_what_is_no_duration_is_answered_with_the_right_spelling(text, hint):
    with pytest.raises(DurationError) as error:
        parse_duration(text)
    assert hint in str(error.value)


@pytest.mark.parametrize("seconds", [0.25, 1, 59, 60, 90, 3600, 5400, 90061])
def test_a_duration_reads_as_it_is_written(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


def test_moments_are_rfc_3339_or_unix_seconds_and_need_a_time_zone():
    assert parse_moment("1970-01-01T00:01:00Z") == parse_moment("60") == parse_moment("1970-01-01T01:01:00+01:00") == 60
    with pytest.raises(DurationError, match="did you mean 1970-01-01T00:01:00Z"):
        parse_moment("1970-01-01T00:01:00")
    with pytest.raises(DurationError, match="is no moment"):
        parse_moment("yesterday")


def test_the_podgroup_wins_over_its_pods_and_the_latest_checkpoint_counts():
    marks = {"muster.dev/min-runtime": "10m", "muster.dev/last-checkpoint": "1000", "volcano.sh/cooldown-time": "600s"}
    others = {
        "muster.dev/min-runtime": "1h",
        "muster.dev/last-checkpoint": "2000",
        "muster.dev/preemption-grace": "45s",
    }
    found = timing([group(annotations=marks)], [pod(annotations=others)])
    assert found == Timing(min_runtime=600, last_checkpoint=2000, cooldown=600, grace=45)


def test_the_gang_started_when_the_first_of_its_standing_pods_was_started():
    pods = [
        pod("a", node="n", phase=Phase.RUNNING, started=50.0),
        pod("b", node="n", phase=Phase.RUNNING, started=40.0),
        pod("c", node="n", phase=Phase.SUCCEEDED, started=10.0),
        pod("d"),
    ]
    assert timing([group()], pods).started == 40.0


def test_the_tighter_of_the_jobs_and_the_pods_deadline_counts_and_bounds_what_is_expected():
    job = Workload(kind="job", namespace="a", name="train-17", uid="w", spec={"activeDeadlineSeconds": 3600})
    found = timing([group(owner=JOB)], [pod(active_deadline=1800.0)], [job])
    assert (found.deadline, found.expected_duration) == (1800.0, 1800.0)
    wish = {"muster.dev/expected-duration": "20m"}
    assert timing([group(owner=JOB, annotations=wish)], [pod()], [job]).expected_duration == 1200.0
    assert timing([group(owner=JOB)], [pod()]).deadline == 0.0


def test_volcanos_own_words_for_an_estimate_and_the_longest_wait_are_understood():
    job = Workload(kind="vcjob", namespace="a", name="train-17", uid="w", spec={"runningEstimate": "15m"})
    found = timing([group(owner=JOB, annotations={"volcano.sh/sla-waiting-time": "2h"})], [pod()], [job])
    assert (found.expected_duration, found.max_wait) == (900.0, 7200.0)


def test_a_gang_is_learned_by_its_owner_without_a_trailing_number():
    assert owner_of(group(owner=JOB), ()) == "Job/train"
    single = Owner(api_version="v1", kind="Pod", name="p", uid="p")
    assert owner_of(group(owner=single), [pod(owner=JOB)]) == "Job/train"
    assert owner_of(group(), ()) == "PodGroup/g"


def test_a_value_that_cannot_be_read_counts_as_none_and_is_told_with_its_place():
    marks = {"muster.dev/min-runtime": "1 day", "muster.dev/max-wait": "1h"}
    assert timing([group(annotations=marks)], [pod()]) == Timing(max_wait=3600)
    (problem,) = timing_problems(marks, path="metadata.annotations")
    assert problem.field == 'metadata.annotations["muster.dev/min-runtime"]'
    assert problem.message.endswith("did you mean 24h?")
    document = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": marks},
        "spec": {"minMember": 1},
    }
    assert problem in lint_document(document, policy=Policy())


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "9999999999999h", "9" * 400 + "ns"])
def test_an_amount_of_time_that_no_clock_can_hold_is_none_and_is_told_in_few_words(text):
    with pytest.raises(DurationError, match="more than 292 years") as told:
        parse_duration(text)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "253402300800", "x" * 100_000])
def test_a_moment_that_no_calendar_has_is_none_and_is_told_in_few_words(text):
    with pytest.raises(DurationError) as told:
        parse_moment(text)
    assert len(str(told.value)) < 200
