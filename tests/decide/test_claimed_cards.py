"""Annotations about cards that owners write on their own pods claim nothing of others."""

import json

import msgspec
import pytest

from muster.decide.assignment import CARDS
from muster.decide.projection.pods import project_pod
from muster.kube.decoding import KINDS


def pod(limits, cards):
    container = {"name": "c", "image": "x:1", "resources": {"limits": limits}}
    document = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "annotations": {CARDS: json.dumps(cards)}},
        "spec": {"nodeName": "n1", "schedulerName": "muster", "containers": [container]},
        "status": {"phase": "Running"},
    }
    return project_pod(msgspec.convert(document, KINDS["pods"].struct))


def whole(*indexes):
    return [{"index": index, "memory_mib": 81920, "core_percent": 100, "whole": True} for index in indexes]


SHARE = {"volcano.sh/gpu-memory": 8192, "volcano.sh/gpu-core": 25}


@pytest.mark.parametrize(
    ("limits", "cards", "claimed"),
    [
        pytest.param({"nvidia.com/gpu": 2}, whole(0, 1), [0, 1], id="what it asks"),
        pytest.param({"nvidia.com/gpu": 2}, whole(*range(8)), [], id="more cards than it asks"),
        pytest.param({"nvidia.com/gpu": 2}, whole(3, 3), [], id="one card twice"),
        pytest.param({"nvidia.com/gpu": 1}, whole(-1), [], id="a card that is none"),
        pytest.param({"nvidia.com/gpu": 1}, [{"index": 0}], [], id="a whole card as if it were shared"),
        pytest.param({}, whole(0, 1), [], id="cards although it asks none"),
        pytest.param(SHARE, whole(0), [], id="a whole card instead of a share"),
        pytest.param(SHARE, [{"index": 2, "memory_mib": 1, "core_percent": 1}], [2], id="less of a card than it asks"),
    ],
)
def test_a_pod_claims_the_cards_that_it_asks_and_no_others(limits, cards, claimed):
    found = pod(limits, cards)
    assert [use.index for use in found.cards] == claimed
    if claimed and limits is SHARE:
        assert (found.cards[0].memory_mib, found.cards[0].core_percent) == (8192, 25)
