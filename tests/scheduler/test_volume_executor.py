"""Fenced writes on claims and volumes: what is sent, with which preconditions, and what an answer means (rule C)."""

import msgspec
import pytest

from muster.fenced.executor import Outcome
from muster.fenced.volumes import SeenClaim, SeenVolume, VolumeExecutor
from muster.kube.errors import Conflict, Invalid, NotFound, Unavailable
from muster.model.units import NodeName, Sequence
from muster.model.volumes import Claim

CLAIM = Claim(namespace="ns", name="data", uid="c", storage_class="fast")
NODE = NodeName("n1")


class Api:
    """An API server with one claim and one volume; others change them between a read and a write, as told."""

    def __init__(self, *, claim=None, volume=None) -> None:
        self.claim = SeenClaim(uid="c", resource_version="10", **(claim or {}))
        self.volume = SeenVolume(uid="v", resource_version="20", **(volume or {}))
        self.meanwhile: list[dict] = []
        self.errors: list[Exception] = []
        self.writes: list[tuple] = []

    async def get_claim(self, namespace, name):
        if self.claim is None:
            raise NotFound("gone")
        return self.claim

    async def get_volume(self, name):
        if self.volume is None:
            raise NotFound("gone")
        return self.volume

    def _changed(self, what):
        if self.errors:
            raise self.errors.pop(0)
        if self.meanwhile:
            return msgspec.structs.replace(what, resource_version=what.resource_version + "1", **self.meanwhile.pop(0))
        return what

    async def select_node(self, namespace, name, *, uid, resource_version, node, token):
        self.claim = self._changed(self.claim)
        if (uid, resource_version) != (self.claim.uid, self.claim.resource_version):
            raise Conflict("stale", precondition=True)
        self.writes.append((resource_version, node, token))

    async def keep_volume(self, name, *, uid, resource_version, claim, token):
        self.volume = self._changed(self.volume)
        if (uid, resource_version) != (self.volume.uid, self.volume.resource_version):
            raise Conflict("stale", precondition=True)
        self.writes.append((resource_version, claim.key, token))


async def select(api, *, entry=5, token=7):
    return await VolumeExecutor(api).select_node(CLAIM, NODE, entry=Sequence(entry), token=Sequence(token))


async def keep(api, *, token=7):
    return await VolumeExecutor(api).keep_volume("v", CLAIM, token=Sequence(token))


async def test_a_node_is_selected_with_the_version_that_was_read_and_with_the_fence():
    api = Api(claim={"fence": 4})
    assert (await select(api)).outcome is Outcome.DONE
    assert api.writes == [("10", "n1", 7)]


@pytest.mark.parametrize(
    ("claim", "outcome"),
    [
        pytest.param({"selected_node": "n1"}, Outcome.DONE, id="selected already"),
        pytest.param({"selected_node": "n2"}, Outcome.DONE, id="another node is selected: it is not chosen again"),
        pytest.param({"volume": "v"}, Outcome.DONE, id="it has a volume"),
        pytest.param({"fence": 8}, Outcome.SUPERSEDED, id="a newer leader chose for it"),
        pytest.param({"fence": 5}, Outcome.REFUSED, id="selected under this entry, and taken back"),
        pytest.param({"fence": 7}, Outcome.REFUSED, id="selected by this leader under this entry, and taken back"),
        pytest.param({"terminating": True}, Outcome.GONE, id="being deleted"),
    ],
)
async def test_a_claim_for_which_nothing_is_sent(claim, outcome):
    api = Api(claim=claim)
    assert (await select(api)).outcome is outcome
    assert api.writes == []


async def test_a_claim_of_the_same_name_with_another_uid_is_gone():
    api = Api()
    api.claim = msgspec.structs.replace(api.claim, uid="other")
    assert (await select(api)).outcome is Outcome.GONE
    api.claim = None
    assert (await select(api)).outcome is Outcome.GONE


async def test_a_claim_that_changed_is_read_again_and_judged_again():
    api = Api()
    api.meanwhile = [{"fence": 8}]
    assert (await select(api)).outcome is Outcome.SUPERSEDED
    api = Api()
    api.meanwhile = [{}]
    assert (await select(api)).outcome is Outcome.DONE
    assert api.writes == [("101", "n1", 7)]


@pytest.mark.parametrize("act", [select, keep])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(Unavailable("timeout", cause="timeout", unknown_outcome=True), Outcome.AGAIN, id="no answer"),
        pytest.param(Invalid("no such field", status=422), Outcome.REFUSED, id="refused for good"),
    ],
)
async def test_an_error_of_a_write(act, error, outcome):
    api = Api()
    api.errors = [error]
    assert (await act(api)).outcome is outcome


async def test_what_keeps_changing_is_left_for_later():
    api = Api()
    api.meanwhile = [{}] * 20
    assert (await select(api)).outcome is Outcome.AGAIN
    api.meanwhile = [{}] * 20
    assert (await keep(api)).outcome is Outcome.AGAIN


async def test_a_volume_is_kept_with_the_version_that_was_read_and_with_the_fence():
    api = Api()
    assert (await keep(api)).outcome is Outcome.DONE
    assert api.writes == [("20", "ns/data", 7)]


@pytest.mark.parametrize(
    ("volume", "outcome"),
    [
        pytest.param({"claim": "ns/data", "claim_uid": "c"}, Outcome.DONE, id="kept for it already"),
        pytest.param(
            {"claim": "ns/data", "claim_uid": "old"}, Outcome.AGAIN, id="kept for an earlier claim of that name"
        ),
        pytest.param({"claim": "ns/other"}, Outcome.AGAIN, id="kept for another claim"),
        pytest.param({"terminating": True}, Outcome.AGAIN, id="being deleted"),
        pytest.param({"fence": 8}, Outcome.SUPERSEDED, id="a newer leader had it"),
    ],
)
async def test_a_volume_for_which_nothing_is_sent(volume, outcome):
    api = Api(volume=volume)
    assert (await keep(api)).outcome is outcome
    assert api.writes == []


async def test_a_volume_that_is_gone():
    api = Api()
    api.volume = None
    assert (await keep(api)).outcome is Outcome.GONE
