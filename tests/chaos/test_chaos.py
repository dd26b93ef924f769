"""Two chaos runs in every test run; `python -m tests.chaos --runs 20` does the rest."""

import pytest

from tests.chaos.__main__ import one

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


@pytest.mark.parametrize("kind", ["kill-scheduler", "kill-nats"])
def test_a_gang_of_200_pods_ends_complete_and_nothing_is_lost(kind):
    # How fast services come back is measured by the report on a quiet machine, not here.
    result = one(kind, 11, recovery_limit=60)
    assert result.problems == []
