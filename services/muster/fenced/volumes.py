"""Writes by which claims get their volumes, fenced as those on pods are (rule C of the commit protocol).

    class with a provisioner ──► annotation selected-node on the claim; the provisioner makes a volume, or takes it away again
    volumes made by people   ──► claimRef of an unbound volume; the controller of volumes binds the two

The fence and what it guards go out in one write with uid and resourceVersion, so a deposed leader cannot choose again for a
claim that a newer one chose for. An answer binds nothing: a claim has its volume when STATE shows it.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from muster.fenced.executor import ATTEMPTS, DONE, GONE, Outcome, Result, not_now
from muster.kube.decoding import RawObject
from muster.kube.errors import Conflict, KubeError, NotFound
from muster.kube.writer import FENCE_ANNOTATION, Writer, fence_of
from muster.model.units import NodeName, Sequence
from muster.model.volumes import Claim

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Says that the volume may be taken from the claim again, since nobody but a controller gave it."""


class SeenClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as a read showed it."""

    uid: str
    resource_version: str
    volume: str = ""
    selected_node: str = ""
    fence: int = 0
    terminating: bool = False


class SeenVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume as a read showed it."""

    uid: str
    resource_version: str
    claim: str = ""
    """``namespace/name`` of the claim it is kept for."""
    claim_uid: str = ""
    fence: int = 0
    terminating: bool = False


class VolumeWrites(Protocol):
    """What `VolumeExecutor` needs; `ApiVolumes` gives it on the real API. Each raises KubeErrors."""

    async def get_claim(self, namespace: str, name: str) -> SeenClaim:
        """The claim as it is now."""
        ...

    async def select_node(
        self, namespace: str, name: str, *, uid: str, resource_version: str, node: NodeName, token: Sequence
    ) -> None:
        """Write the node and the fence, unless the claim has changed."""

    async def get_volume(self, name: str) -> SeenVolume:
        """The volume as it is now."""
        ...

    async def keep_volume(self, name: str, *, uid: str, resource_version: str, claim: Claim, token: Sequence) -> None:
        """Keep the volume for the claim and write the fence, unless the volume has changed."""


class VolumeExecutor:
    """Fenced writes on claims and volumes. Stateless: whoever calls decides what is in flight."""

    def __init__(self, writes: VolumeWrites) -> None:
        self._writes = writes

    async def select_node(self, claim: Claim, node: NodeName, *, entry: Sequence, token: Sequence) -> Result:
        """Have a volume made for the claim on the node, unless one is being made already.

        Args:
            claim: as STATE shows it.
            node: where its pod goes.
            entry: the LEDGER entry that says so.
            token: the fence.
        """
        for _ in range(ATTEMPTS):
            try:
                seen = await self._writes.get_claim(claim.namespace, claim.name)
                if seen.uid != claim.uid or seen.terminating:
                    return GONE
                if seen.volume or seen.selected_node:
                    return DONE
                if seen.fence > token:
                    return Result(outcome=Outcome.SUPERSEDED, message=f"fence {seen.fence} is above {token}")
                if seen.fence >= entry:
                    return Result(outcome=Outcome.REFUSED, message=gave_up(claim, node))
                await self._writes.select_node(
                    claim.namespace,
                    claim.name,
                    uid=seen.uid,
                    resource_version=seen.resource_version,
                    node=node,
                    token=token,
                )
            except NotFound:
                return GONE
            except Conflict:
                continue
            except KubeError as error:
                return not_now(error)
            return DONE
        return Result(outcome=Outcome.AGAIN, message=f"claim {claim.key} keeps changing", retry_after=1.0)

    async def keep_volume(self, name: str, claim: Claim, *, token: Sequence) -> Result:
        """Keep an unbound volume for the claim, unless it is kept for another meanwhile."""
        for _ in range(ATTEMPTS):
            try:
                seen = await self._writes.get_volume(name)
                if (seen.claim, seen.claim_uid) == (claim.key, claim.uid):
                    return DONE
                if seen.claim or seen.terminating:
                    taken = f"is kept for {seen.claim}" if seen.claim else "is being deleted"
                    return Result(outcome=Outcome.AGAIN, message=f"volume {name} {taken}", retry_after=1.0)
                if seen.fence > token:
                    return Result(outcome=Outcome.SUPERSEDED, message=f"fence {seen.fence} is above {token}")
                await self._writes.keep_volume(
                    name, uid=seen.uid, resource_version=seen.resource_version, claim=claim, token=token
                )
            except NotFound:
                return GONE
            except Conflict:
                continue
            except KubeError as error:
                return not_now(error)
            return DONE
        return Result(outcome=Outcome.AGAIN, message=f"volume {name} keeps changing", retry_after=1.0)


def gave_up(claim: Claim, node: NodeName) -> str:
    """Why a claim got no volume: its node was selected under this entry, and somebody took that back."""
    return f"the provisioner of {claim.storage_class} gave up making a volume for the claim {claim.name} on {node}"


class ApiVolumes:
    """Writes on claims and volumes by one Writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def get_claim(self, namespace: str, name: str) -> SeenClaim:
        """The claim as it is now."""
        raw: RawObject = await self._writer.get(CLAIMS, namespace, name)
        metadata = raw.metadata
        return SeenClaim(
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            volume=str(raw.spec.get("volumeName") or ""),
            selected_node=metadata.annotations.get(SELECTED_NODE, ""),
            fence=fence_of(metadata.annotations),
            terminating=metadata.deletion_timestamp is not None,
        )

    async def select_node(
        self, namespace: str, name: str, *, uid: str, resource_version: str, node: NodeName, token: Sequence
    ) -> None:
        """Write the node and the fence, unless the claim has changed."""
        marks = {SELECTED_NODE: str(node)}
        await self._writer.merge_patch(CLAIMS, namespace, name, _marked(uid, resource_version, marks, token))

    async def get_volume(self, name: str) -> SeenVolume:
        """The volume as it is now."""
        raw: RawObject = await self._writer.get(VOLUMES, None, name)
        kept_for = raw.spec.get("claimRef") or {}
        return SeenVolume(
            uid=raw.metadata.uid,
            resource_version=raw.metadata.resource_version,
            claim=f"{kept_for.get('namespace') or ''}/{kept_for['name']}" if kept_for.get("name") else "",
            claim_uid=str(kept_for.get("uid") or ""),
            fence=fence_of(raw.metadata.annotations),
            terminating=raw.metadata.deletion_timestamp is not None,
        )

    async def keep_volume(self, name: str, *, uid: str, resource_version: str, claim: Claim, token: Sequence) -> None:
        """Keep the volume for the claim and write the fence, unless the volume has changed."""
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        body = {**_marked(uid, resource_version, {BOUND_BY_CONTROLLER: "yes"}, token), "spec": {"claimRef": reference}}
        await self._writer.merge_patch(VOLUMES, None, name, body)


def _marked(uid: str, resource_version: str, marks: Mapping[str, str], token: Sequence) -> dict[str, object]:
    annotations = {**marks, FENCE_ANNOTATION: str(token)}
    return {"metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": annotations}}
