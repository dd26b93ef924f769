"""The policy is followed while a service runs: a sound file comes into force, a wrong one is refused and said to be."""

import asyncio
import os

import pytest
import structlog
from prometheus_client import CollectorRegistry

from muster.model.policy import Policy
from muster.runtime.policy_file import PolicyError
from muster.runtime.policy_watch import PolicySource, changed_fields

LATER = 10_000.0
"""Seconds after which a file of now is not young any more."""


class Watched:
    """A policy file, and a source that looks at it when told, with a clock of its own."""

    def __init__(self, directory, text="bind_concurrency: 8\n"):
        self.path = directory / "policy.yaml"
        self.path.write_text(text)
        self.now = self.path.stat().st_mtime + LATER
        self.registry = CollectorRegistry()
        self.logs = structlog.testing.LogCapture()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.logs])
        self.source = PolicySource(self.path, log=log, wall=lambda: self.now)
        self.source.measure(self.registry)
        self.heard = []
        self.source.follow(self.heard.append)

    def write(self, text):
        self.path.write_text(text)

    def looks(self, times=2):
        self.now += 1
        return [self.source.look() for _ in range(times)]

    def gauge(self, name):
        return self.registry.get_sample_value(name)

    def said(self):
        return [entry["event"] for entry in self.logs.entries]


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


def test_a_sound_change_comes_into_force_once_and_everybody_is_told(watched):
    assert watched.looks() == [False, False]
    watched.write("bind_concurrency: 9\nwaiting: {percent: 50}\n")
    assert watched.looks(4) == [False, True, False, False]
    assert watched.source.current.waiting.percent == 50
    assert watched.heard == [watched.source.current]
    assert watched.gauge("muster_policy_valid") == 1
    assert watched.gauge("muster_policy_loaded_timestamp_seconds") == watched.now
    assert watched.logs.entries[0]["changed"] == ["waiting", "bind_concurrency"]


def test_a_wrong_file_is_refused_with_its_line_and_the_old_policy_stays_until_it_is_cured(watched):
    before, loaded = watched.source.current, watched.source.loaded_at
    watched.write("bind_concurrency: 8\npackin: {}\n")
    assert watched.looks(5) == [False] * 5
    assert watched.source.current is before
    assert "policy.yaml:2: packin: no key packin is known here; did you mean packing?" in watched.source.problem
    assert watched.said() == ["the policy file is refused; the policy before it stays in force"]
    assert watched.gauge("muster_policy_valid") == 0
    watched.write("bind_concurrency: 8\n")
    assert watched.looks(3) == [False] * 3
    assert (watched.source.problem, watched.source.loaded_at) == ("", loaded)
    assert watched.gauge("muster_policy_valid") == 1
    assert not watched.heard


def test_a_file_that_is_still_being_written_is_not_taken(watched):
    for text in ("bind", "bind_concurrency: 1", "bind_concurrency: 16\n"):
        watched.write(text)
        assert watched.looks(1) == [False]
    assert watched.source.valid
    assert watched.looks(1) == [True]
    assert watched.source.current.bind_concurrency == 16


@pytest.mark.parametrize("text", ["", "\n\n", "# all gone\n", "---\n"])
def test_a_file_that_says_nothing_does_not_set_everything_back(watched, text):
    watched.write(text)
    watched.looks(3)
    assert watched.source.current.bind_concurrency == 8
    assert "to take every default write {}" in watched.source.problem
    watched.write("{}\n")
    watched.looks(3)
    assert watched.source.current == Policy()


def test_a_file_that_is_gone_changes_nothing_but_is_said(watched):
    watched.path.unlink()
    watched.looks()
    assert "cannot be read" in watched.source.problem
    assert watched.source.current.bind_concurrency == 8
    watched.write("bind_concurrency: 8\n")
    watched.looks()
    assert watched.source.valid


def test_a_change_of_the_same_length_within_one_tick_of_the_clock_is_seen(watched):
    before = watched.path.stat()
    watched.now = before.st_mtime + 1
    watched.write("bind_concurrency: 7\n")
    os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [watched.source.look() for _ in range(2)] == [False, True]
    assert watched.source.current.bind_concurrency == 7


def test_a_configmap_that_is_swapped_by_links_is_followed(tmp_path):
    for version, text in (("1", "bind_concurrency: 8\n"), ("2", "bind_concurrency: 9\n")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "policy.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    source = PolicySource(tmp_path / "policy.yaml")
    assert source.current.bind_concurrency == 8
    (tmp_path / "..new").symlink_to("2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert [source.look() for _ in range(2)] == [False, True]
    assert source.current.bind_concurrency == 9


async def test_the_file_is_looked_at_again_and_again_in_any_time(watched):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            watched.write("bind_concurrency: 5\n")
        if len(slept) > 5:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await watched.source.run(every=7.0, sleep=sleep)
    assert slept == [7.0] * 6
    assert watched.source.current.bind_concurrency == 5


def test_at_the_start_a_wrong_file_is_an_error_and_without_a_file_there_is_nothing_to_follow(tmp_path):
    with pytest.raises(PolicyError, match="cannot be read"):
        PolicySource(tmp_path / "none.yaml")
    source = PolicySource()
    assert source.current == Policy()
    assert not source.look()


def test_what_differs_is_told_by_the_fields_of_the_whole():
    assert changed_fields(Policy(), Policy(bind_concurrency=1, aliases=())) == ["aliases", "bind_concurrency"]
