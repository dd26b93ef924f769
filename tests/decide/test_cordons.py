"""What open entries of nodes call for (rule G), as a table; the fold that keeps them; and the race with pods that come late."""

import asyncio
import random

import msgspec
import pytest

from muster.decide.commitments import LedgerView, NodeVerb
from muster.decide.cordons import Surrounds, named_nodes, settle_nodes, withheld
from muster.decide.folding import fold
from muster.decide.projection.nodes import project_node
from muster.fenced.executor import Outcome
from muster.fenced.nodes import NodeExecutor
from muster.kube.errors import Conflict
from muster.kube.objects import NodeSpec, ObjectMeta, RawNode
from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Cordon, Leader, NodeClose, Removable, Uncordon
from muster.model.nodes import Cordoned, Node
from muster.model.pods import Owner, Phase, Pod

OURS = Cordoned(owner="muster", since=1.0, reason="IDLE")
NODE = Node(name="n1", uid="n1-uid", resource_version="20", fence=5, unschedulable=True, cordoned=OURS)
POD = Pod(namespace="ns", name="late", uid="u", node="n1", phase=Phase.RUNNING)
DAEMON = msgspec.structs.replace(
    POD, name="dcgm", owner=Owner(api_version="apps/v1", kind="DaemonSet", name="d", uid="d")
)


def commit(view, *entries, at=100.0):
    return fold(view, view.sequence + 1, Commit(epoch=view.leader, identity="p0", entries=entries, at=at))


def led():
    return fold(LedgerView(), 4, Commit(epoch=0, identity="p0", entries=(Leader(identity="p0", lease_transitions=1),)))


def cordoned():
    return commit(led(), Cordon(node="n1", node_uid="n1-uid", reason="IDLE"))


def removable():
    return commit(cordoned(), Removable(node="n1", cordon=5))


def uncordoning(*, labelled=False):
    return commit(removable() if labelled else cordoned(), Uncordon(node="n1", node_uid="n1-uid", reason="DEMAND"))


def settled(view, node=NODE, *, pods=(), **more):
    there = {} if node is None else {"n1": node}
    marked = frozenset(there) if node is not None and (node.removable or node.cordoned) else frozenset()
    around = Surrounds(
        **{
            "nodes": there,
            "marked": marked,
            "standing": {"n1": tuple(pods)},
            "named": frozenset(),
            "complete": "20",
            "versions": {},
            "rested": {},
            "now": 110.0,
            **more,
        }
    )
    found = tuple(settle_nodes(view.nodes, around))
    assert len(found) < 2
    return found[0] if found else None


BACK = msgspec.structs.replace(NODE, unschedulable=False, cordoned=None, fence=6)
TABLE = {
    "a cordon that STATE shows, with pods known as late as that, makes the node removable": (
        cordoned, {}, Removable(node="n1", cordon=5, freshness="20"),
    ),
    "pods known only from before the cordon tell nothing yet": (cordoned, {"complete": "19"}, None),
    "pods that nothing is promised of tell nothing yet": (cordoned, {"complete": ""}, None),
    "the version that showed the cordon first is enough, whatever the kubelet has written since": (
        cordoned, {"complete": "19", "versions": {5: "18"}}, Removable(node="n1", cordon=5, freshness="19"),
    ),
    "other schedulers get time to hear of a cordon": (cordoned, {"settle": 10.0, "rested": {5: 9.0}}, None),
    "while cordons are paused nothing becomes removable": (cordoned, {"paused": True}, None),
    "a cordon that is not written yet is waited for": (
        cordoned, {"node": msgspec.structs.replace(NODE, fence=0, unschedulable=False, cordoned=None)}, None,
    ),
    "a cordon that nobody writes in time is given up": (
        cordoned, {"node": msgspec.structs.replace(NODE, fence=0, unschedulable=False, cordoned=None), "now": 500.0}, "NOT_WRITTEN",
    ),
    "a pod that came before the cordon gives the node back": (cordoned, {"pods": (POD,)}, "OCCUPIED"),
    "a pod that came in spite of it gives a removable node back": (removable, {"pods": (POD,)}, "OCCUPIED"),
    "DaemonSet pods come and go with their node": (
        cordoned, {"pods": (DAEMON,)}, Removable(node="n1", cordon=5, freshness="20"),
    ),
    "a pod that has ended holds nothing": (
        cordoned, {"pods": (msgspec.structs.replace(POD, phase=Phase.SUCCEEDED),)}, Removable(node="n1", cordon=5, freshness="20"),
    ),
    "a node that an open entry names is given back": (cordoned, {"named": frozenset({"n1"})}, "OCCUPIED"),
    "whoever lifts our cordon by hand is not worked against": (
        removable, {"node": msgspec.structs.replace(NODE, fence=6, unschedulable=False)}, "BY_HAND",
    ),
    "where the policy observes no node stays cordoned": (cordoned, {"acts": False}, "OBSERVE"),
    "a node that was removed is done with": (removable, {"node": None}, NodeClose(node="n1", entry=6, outcome="removed")),
    "a node of the same name is another one": (
        removable, {"node": msgspec.structs.replace(NODE, uid="other", cordoned=None)}, NodeClose(node="n1", entry=6, outcome="removed"),
    ),
    "a node is back when STATE shows it": (uncordoning, {"node": BACK}, NodeClose(node="n1", entry=6, outcome="returned")),
    "a node is not back before that": (uncordoning, {}, None),
    "a node that carried the label waits for removals that are on their way": (
        lambda: uncordoning(labelled=True),
        {"node": msgspec.structs.replace(BACK, fence=7), "rested": {7: 59.0}},
        None,
    ),
    "and is back after the grace": (
        lambda: uncordoning(labelled=True),
        {"node": msgspec.structs.replace(BACK, fence=7), "rested": {7: 60.0}},
        NodeClose(node="n1", entry=7, outcome="returned"),
    ),
    "a node on its way out does not come back": (
        uncordoning, {"node": msgspec.structs.replace(BACK, terminating=True)}, None,
    ),
    "a mark of ours without an entry is lifted, for nobody knows what was promised": (led, {}, "UNKNOWN"),
    "a cordon of others is none of our business": (
        led, {"node": msgspec.structs.replace(NODE, cordoned=None)}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("view", "given", "wanted"), TABLE.values(), ids=TABLE)
def test_what_follows_from_an_open_entry_of_a_node(view, given, wanted):
    found = settled(view(), **given)
    if isinstance(wanted, str):
        assert isinstance(found, Uncordon)
        assert found.reason == wanted
        assert found.message
    else:
        assert found == wanted


def test_a_node_has_one_open_entry_and_each_replaces_the_one_before():
    view = cordoned()
    assert (view.nodes["n1"].verb, view.nodes["n1"].sequence, view.nodes["n1"].labelled) == (NodeVerb.CORDON, 5, False)
    view = commit(view, Removable(node="n1", cordon=5))
    assert (view.nodes["n1"].verb, view.nodes["n1"].begins, view.nodes["n1"].labelled) == (NodeVerb.REMOVABLE, 5, True)
    assert commit(view, Removable(node="n1", cordon=5)).nodes == view.nodes, (
        "a late removable of another cordon is void"
    )
    view = commit(view, Uncordon(node="n1", node_uid="n1-uid", reason="DEMAND", gang="ns/g"))
    assert (view.nodes["n1"].verb, view.nodes["n1"].labelled, view.nodes["n1"].gang) == (
        NodeVerb.UNCORDON,
        True,
        "ns/g",
    )
    assert commit(view, NodeClose(node="n1", entry=6, outcome="returned")).nodes, "of an entry that was replaced"
    assert not commit(view, NodeClose(node="n1", entry=7, outcome="returned")).nodes


def test_nodes_of_open_entries_are_named():
    slot = Slot(uid="u", pod="p", role="w", node="n7")
    view = commit(led(), Bind(gang="ns/g", gang_uid="g", slots=(slot,)))
    assert named_nodes(view) == {"n7"}
    assert not named_nodes(commit(view, Close(gang="ns/g", entry=5, outcome="bound", freshness="1")))


def test_a_node_with_an_open_entry_is_withheld_and_one_of_the_same_name_is_not():
    promise = cordoned().nodes["n1"]
    plain = msgspec.structs.replace(NODE, cordoned=None, unschedulable=False)
    assert "idle" in withheld(plain, promise).withheld
    assert withheld(msgspec.structs.replace(plain, uid="other"), promise).withheld == ""
    assert withheld(NODE, None).withheld, "a mark without an entry"
    assert withheld(plain, None).withheld == ""


# --- the race: empty when it was decided, not empty any more when the cordon lands --------------------------------------


class Api:
    """One node and the pods on it, as an API server keeps them: a write that rests on an old version is refused."""

    def __init__(self) -> None:
        self.revision = 10
        self.node = RawNode(metadata=ObjectMeta(name="n1", uid="n1-uid", resource_version="10"))
        self.pods: list[tuple[int, Pod]] = []

    def bind(self, name: str) -> None:
        self.revision += 1
        self.pods.append((self.revision, msgspec.structs.replace(POD, name=name, uid=name)))

    async def get(self, _kind, _namespace, _name):
        await asyncio.sleep(0)
        return self.node

    async def merge_patch(self, _kind, _namespace, _name, body):
        await asyncio.sleep(0)
        metadata = body["metadata"]
        if metadata["resourceVersion"] != self.node.metadata.resource_version:
            raise Conflict("changed")
        self.revision += 1
        changed = ObjectMeta(
            name="n1",
            uid="n1-uid",
            resource_version=str(self.revision),
            annotations=_merged(self.node.metadata.annotations, metadata.get("annotations", {})),
            labels=_merged(self.node.metadata.labels, metadata.get("labels", {})),
        )
        unschedulable = body["spec"]["unschedulable"] if "spec" in body else self.node.spec.unschedulable
        self.node = RawNode(metadata=changed, spec=NodeSpec(unschedulable=bool(unschedulable)))

    @property
    def removable(self) -> bool:
        return "muster.dev/removable" in self.node.metadata.labels


def _merged(before, patch):
    return {name: value for name, value in {**before, **patch}.items() if value is not None}


async def race(seed: int, *, fresh: bool = True) -> str:
    """One history with random delays; what was wrong in it, if anything was."""
    rng = random.Random(seed)
    api, view = Api(), cordoned()
    executor = NodeExecutor(api)
    seen_node, seen_pods, complete = project_node(api.node), (), 10
    under_way: list[asyncio.Task] = []
    late = rng.randrange(1, 12)
    for step in range(40):
        if step == late and not api.node.spec.unschedulable:
            api.bind("late")
        doing = rng.random()
        if doing < 0.3:
            seen_node = project_node(api.node)
        elif doing < 0.5:
            complete = rng.randint(complete, api.revision)
            seen_pods = tuple(pod for revision, pod in api.pods if revision <= complete)
        elif doing < 0.7 and view.nodes and len(under_way) < 3:
            under_way.append(asyncio.create_task(executor.carry_out(view.nodes["n1"])))
        else:
            around = Surrounds(
                nodes={"n1": seen_node},
                marked=frozenset(),
                standing={"n1": seen_pods},
                named=frozenset(),
                complete=str(complete if fresh else 10**9),
                versions={},
                rested={promise.sequence: 100.0 for promise in view.nodes.values()},
                now=100.0,
            )
            view = commit(view, *settle_nodes(view.nodes, around))
        await asyncio.sleep(0)
        if api.removable and api.pods:
            return f"after step {step} a pod stands on a node that may be removed"
    for task in under_way:
        assert (await task).outcome in {Outcome.DONE, Outcome.SUPERSEDED, Outcome.ELSEWHERE}
    return ""


def test_a_pod_that_comes_just_before_the_cordon_lands_is_never_on_a_removable_node():
    async def all_of_them():
        return [problem for seed in range(1000) if (problem := await race(seed))]

    assert asyncio.run(all_of_them()) == []


def test_without_waiting_for_the_pods_as_of_the_cordon_the_race_is_lost():
    async def all_of_them():
        return [problem for seed in range(1000) if (problem := await race(seed, fresh=False))]

    assert asyncio.run(all_of_them())
