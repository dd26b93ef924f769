"""Carries out open entries of nodes, fenced (rule G): every write carries the node's uid, its resourceVersion and the fence.

    cordon      spec.unschedulable, and annotations that say who, since when and why
    removable   the label by which others may remove it, if our cordon still stands
    uncordon    all of that away; a cordon that is not ours stays

The token is the entry's own sequence: an older entry's write is dropped where a newer fence stands. Marks for other
autoscalers are courtesies: they carry the resourceVersion, and no fence.
"""

from collections.abc import Callable
from typing import Any

from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.cordons import OWNER
from muster.decide.projection.metadata import (
    CORDON_OWNER,
    CORDON_REASON,
    CORDON_SINCE,
    FENCE,
    KEPT_BY,
    NODE_HOLDS,
    REMOVABLE,
)
from muster.fenced.executor import DONE, GONE, Outcome, Result, not_now
from muster.kube.decoding import NODES
from muster.kube.errors import Conflict, KubeError, NotFound
from muster.kube.objects import RawNode
from muster.kube.writer import Writer, fence_of
from muster.model.units import NodeName

Body = dict[str, Any]
ATTEMPTS = 6
LONGEST_REASON = 500


class NodeExecutor:
    """Fenced writes on nodes by one Writer. Stateless: whoever calls decides what is in flight."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def carry_out(self, promise: NodePromise) -> Result:
        """Write what the entry says, unless the node shows it already or a newer one stands."""

        def change(node: RawNode) -> Result | Body:
            return _verdict(promise, node) or _patch(promise, node)

        return await self._write(promise.node, change)

    async def mark(self, name: NodeName, *, keep: bool) -> Result:
        """Ask other autoscalers to leave the node alone, or lift what we asked; what others ask stays."""

        def change(node: RawNode) -> Result | Body:
            annotations = node.metadata.annotations
            asked = keep and any(annotations.get(one) == "true" for one in NODE_HOLDS)
            if (KEPT_BY in annotations) is keep or asked:
                return DONE
            marks: dict[str, str | None] = dict.fromkeys(NODE_HOLDS, "true" if keep else None)
            marks[KEPT_BY] = OWNER if keep else None
            return {"metadata": _metadata(node, marks)}

        return await self._write(name, change)

    async def _write(self, name: NodeName, change: Callable[[RawNode], Result | Body]) -> Result:
        """Read the node and write what is to be changed in that version of it, until that is one nobody else wrote meanwhile."""
        for _ in range(ATTEMPTS):
            try:
                node: RawNode = await self._writer.get(NODES, None, name)
                body = change(node)
                if isinstance(body, Result):
                    return body
                await self._writer.merge_patch(NODES, None, name, body)
            except NotFound:
                return GONE
            except Conflict:
                continue
            except KubeError as error:
                return not_now(error)
            return DONE
        return Result(outcome=Outcome.AGAIN, message=f"node {name} keeps changing", retry_after=1.0)


def _verdict(promise: NodePromise, node: RawNode) -> Result | None:
    """What is the case already; None when there is something to write."""
    if node.metadata.uid != promise.node_uid:
        return GONE
    fence = fence_of(node.metadata.annotations)
    if fence > promise.sequence:
        return Result(outcome=Outcome.SUPERSEDED, message=f"fence {fence} is above {promise.sequence}")
    if fence == promise.sequence:
        return DONE
    ours = node.metadata.annotations.get(CORDON_OWNER) == OWNER
    if promise.verb is NodeVerb.CORDON and node.spec.unschedulable and not ours:
        return Result(outcome=Outcome.ELSEWHERE, message=f"somebody else has cordoned {promise.node}")
    if promise.verb is NodeVerb.REMOVABLE and not (ours and node.spec.unschedulable):
        return Result(outcome=Outcome.ELSEWHERE, message=f"somebody lifted the cordon of {promise.node}")
    return None


def _patch(promise: NodePromise, node: RawNode) -> Body:
    marks: dict[str, str | None] = {FENCE: str(promise.sequence)}
    match promise.verb:
        case NodeVerb.CORDON:
            marks |= {
                CORDON_OWNER: OWNER,
                CORDON_SINCE: str(int(promise.since)),
                CORDON_REASON: f"{promise.reason}: {promise.message}"[:LONGEST_REASON],
            }
            return {"metadata": _metadata(node, marks), "spec": {"unschedulable": True}}
        case NodeVerb.REMOVABLE:
            return {"metadata": {**_metadata(node, marks), "labels": {REMOVABLE: "true"}}}
        case NodeVerb.UNCORDON:
            ours = node.metadata.annotations.get(CORDON_OWNER) == OWNER
            marks |= dict.fromkeys((CORDON_OWNER, CORDON_SINCE, CORDON_REASON))
            body: Body = {"metadata": {**_metadata(node, marks), "labels": {REMOVABLE: None}}}
            return {**body, "spec": {"unschedulable": None}} if ours else body


def _metadata(node: RawNode, marks: dict[str, str | None]) -> dict[str, Any]:
    metadata = node.metadata
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version, "annotations": marks}
