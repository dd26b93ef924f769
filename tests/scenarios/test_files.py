"""Every scenario file, ours and the shared ones where present, judged on the pure core."""

import os
from pathlib import Path

import pytest

from muster.scenarios.format import load
from muster.scenarios.report import files_below, judge

HERE = Path(__file__).parent
OWN = HERE / "files"
SHARED = Path(os.environ.get("MUSTER_SHARED_SCENARIOS", HERE.parents[2] / "shared" / "scenarios"))


def named(root: Path) -> list[pytest.param]:
    return [pytest.param(path, id=path.stem) for path in files_below([root])] if root.is_dir() else []


@pytest.mark.parametrize("path", named(OWN))
def test_our_scenario_comes_out_as_it_says(path):
    scenario, result = load(path), judge(path)
    assert result.id == path.stem
    if scenario.gap:
        assert not result.ok, f"it comes true: take `gap` out of {path.name}"
        assert not any("failed" in line for line in result.why), result.why
    else:
        assert result.ok, "\n".join(result.why)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared scenarios are not here")
@pytest.mark.parametrize("path", named(SHARED))
def test_shared_scenario_comes_out_as_it_says(path):
    result = judge(path)
    assert result.ok, "\n".join(result.why)


def test_our_scenarios_cover_every_pending_only_file_with_a_twin():
    assert len([path for path in files_below([OWN]) if path.stem.endswith("-twin")]) >= 43
