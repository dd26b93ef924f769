"""Rule G: a node is cordoned, made removable, given back, and perhaps removed by a node autoscaler that reads the label and acts a while later.

    committer ─ cordon, removable, uncordon, bind ─► LEDGER ─► executor ─ writes (they linger) ─► node ◄─ reads label, removes later ─ remover
        └──◄─ view of the node, view of its pods (each at its own freshness) ◄─ STATE ◄──────────┘

One node, one pod of ours, one pod of another scheduler. An executor may still hold any entry that was ever committed: that is what pausing does to it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Step
from tests.model.rules import NODE_RULES

CORDON, REMOVABLE, UNCORDON = "cordon", "removable", "uncordon"
FAIR_ORDER = ("land", "remove", "sync", "grace", "execute", "close", "bind", UNCORDON)


class Node(NamedTuple):
    """The node object: whether it is there, our cordon, the removable label, the fence, its last write's revision."""

    there: bool = True
    cordoned: bool = False
    label: bool = False
    fence: int = 0
    revision: int = 1


class View(NamedTuple):
    """What the committer sees: the node, and who is on it as of the freshness `pods_at`."""

    node: Node
    ours: bool = False
    foreign: bool = False
    pods_at: int = 1


class Write(NamedTuple):
    """A node write in flight; it carries the node's resourceVersion unless that rule is left out."""

    verb: str
    token: int


class World(NamedTuple):
    """`entries` are the node verbs by sequence; `bind` is 0, or 1 while its entry is open, or 2 once closed."""

    node: Node
    view: View
    entries: tuple[tuple[int, str], ...] = ()
    sequence: int = 0
    revision: int = 1
    bind: int = 0
    binding: bool = False
    ours: bool = False
    foreign: bool = False
    foreign_left: int = 1
    writes: tuple[Write, ...] = ()
    removing: bool = False
    graced: int = 0
    verbs_left: int = 3
    broken: str = ""


class NodeProtocol:
    """Explorable model of rule G; `verbs` bounds how many node entries may be committed."""

    def __init__(self, *, verbs: int, without: frozenset[str] = frozenset()) -> None:
        self.on = frozenset(NODE_RULES.keys() - without)
        self.start = World(Node(), View(Node()), verbs_left=verbs)

    def initial(self) -> World:
        """The first world."""
        return self.start

    def canonical(self, world: World) -> World:
        """Nothing to merge: a bounded number of entries bounds everything."""
        return world

    def violation(self, world: World) -> str:
        """Set where the node is removed."""
        return world.broken

    def unsettled(self, world: World) -> str:
        """Without faults our pod ends bound, unless the node was removed or another pod has it."""
        for _ in range(200):
            steps = {step.kind: step for step in reversed(list(self.steps(world, fair=True)))}
            kind = next((kind for kind in FAIR_ORDER if kind in steps), None)
            if kind is None:
                break
            world = steps[kind].state
            if world.broken:
                return f"{world.broken} (in a fair continuation)"
        if world.node.there and not world.ours and not world.foreign:
            return "no progress: our pod stays unbound beside a node that is free"
        return ""

    def steps(self, world: World, *, fair: bool = False) -> Iterator[Step]:
        """Everything that may happen next; `fair`: nobody cordons or makes removable any more."""
        for write in world.writes:
            yield self._land(world, write)
        if world.binding:
            after = world._replace(binding=False, ours=world.node.there, revision=world.revision + 1)
            yield Step("land", "our Binding is carried out", after)
        yield from self._others(world, fair=fair)
        yield from self._committer(world, fair=fair)
        for token, verb in world.entries:
            write = Write(verb, token)
            done = world.node.fence == token
            newer = world.node.fence > token and "G-fence-on-nodes" in self.on
            if world.node.there and not done and not newer and write not in world.writes:
                label = f"the executor reads the node (fence {world.node.fence}) and sends {verb} (token {token})"
                yield Step("execute", label, world._replace(writes=tuple(sorted({*world.writes, write}))))

    def _land(self, world: World, write: Write) -> Step:
        rest = tuple(w for w in world.writes if w != write)
        label = f"the {write.verb} write (token {write.token}) is carried out"
        if not world.node.there:
            return Step("land", f"the {write.verb} write finds no node", world._replace(writes=rest))
        revision = world.revision + 1
        node = Node(True, write.verb != UNCORDON, write.verb == REMOVABLE, write.token, revision)
        # guarded writes that rest on an older read would now be answered 409
        writes = () if "G-version-on-nodes" in self.on else rest
        return Step("land", label, world._replace(node=node, writes=writes, revision=revision))

    def _others(self, world: World, *, fair: bool) -> Iterator[Step]:
        # after an uncordon a removal may still be on its way: rule G keeps us off the node, it cannot keep others off
        given_back = any(verb == UNCORDON for _, verb in world.entries)
        free = world.node.there and not world.node.cordoned and not world.ours and not given_back
        if world.foreign_left and free and not fair:
            after = world._replace(foreign=True, foreign_left=0, revision=world.revision + 1)
            yield Step("foreign", "another scheduler binds its pod to the node", after)
        if world.node.there and world.node.label and not world.removing:
            yield Step(
                "decide", "the remover reads the label and decides to remove the node", world._replace(removing=True)
            )
        if world.removing:
            broken = ""
            if world.node.there and (world.ours or world.foreign):
                broken = f"the node is removed under {'our' if world.ours else 'another'} pod"
            elif world.node.there and world.bind == 1:
                broken = "the node is removed under an open entry that binds to it"
            after = world._replace(node=Node(there=False), removing=False, revision=world.revision + 1, broken=broken)
            yield Step("remove", "the remover removes the node", after)

    def _committer(self, world: World, *, fair: bool) -> Iterator[Step]:
        view = world.view
        if view.node != world.node:
            seen = world._replace(view=view._replace(node=world.node))
            yield Step("sync", "the committer's view of the node is up to now", seen)
        if view.pods_at != world.revision:
            seen = world._replace(view=View(view.node, world.ours, world.foreign, world.revision))
            yield Step("sync", "the committer's view of the pods is up to now", seen)
        sequence, verb = world.entries[-1] if world.entries else (0, UNCORDON)
        clean = view.node.fence >= sequence and not view.node.cordoned and not view.node.label
        shown = clean or "G-uncordon-shown" not in self.on
        if verb == UNCORDON and sequence and shown and world.graced < sequence and not world.removing:
            yield Step("grace", "the removal grace passes with the node still there", world._replace(graced=sequence))
        # who never was allowed to label the node has shown it to no remover: then there is nothing to wait for
        labelled = any(earlier == REMOVABLE and number > world.graced for number, earlier in world.entries)
        rested = world.graced >= sequence or not labelled or "G-removal-grace" not in self.on
        if verb == UNCORDON and shown and rested and view.node.there and not world.bind and not view.foreign:
            after = world._replace(bind=1, sequence=world.sequence + 1)
            yield Step("bind", f"the committer binds our pod to the node (sequence {after.sequence})", after)
        if world.bind == 1 and not world.ours and not world.binding and world.node.there:
            yield Step("execute", "our Binding is sent", world._replace(binding=True))
        if world.bind == 1 and view.ours:
            yield Step("close", "the bind entry closes: STATE shows our pod bound", world._replace(bind=2))
        if fair and verb != UNCORDON:
            yield self._commit(world, UNCORDON)
        if fair or not world.verbs_left:
            return
        if verb == UNCORDON and view.node.there:
            yield self._commit(world, CORDON)
        if verb != UNCORDON:
            yield self._commit(world, UNCORDON)
        ours = view.node.cordoned and view.node.fence == sequence
        fresh = view.pods_at >= view.node.revision or "G-removable-fresh" not in self.on
        unclosed = world.bind == 1 and "G-no-unclosed-entry" in self.on
        if verb == CORDON and ours and fresh and not (view.ours or view.foreign or unclosed):
            yield self._commit(world, REMOVABLE)

    def _commit(self, world: World, verb: str) -> Step:
        sequence = world.sequence + 1
        entries = (*world.entries, (sequence, verb))
        after = world._replace(entries=entries, sequence=sequence, verbs_left=world.verbs_left - 1)
        return Step(verb, f"the committer appends {verb} (sequence {sequence})", after)
