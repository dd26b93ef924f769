"""Small instances: each names what goes wrong in it. p0 leads at the start (leader entry, sequence 1); p1 stands by."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.deciding import Gang
from tests.model.explore import Explorable
from tests.model.ledger import BIND, CLOSE, LEADER, UNBOUND, Entry, Slot
from tests.model.nodes import NodeProtocol
from tests.model.protocol import CommitProtocol
from tests.model.rules import RULES
from tests.model.state_stream import Counts
from tests.model.watchers import WatcherProtocol
from tests.model.world import Budget, Leader, Pod, Role, Room, World


@dataclass(frozen=True)
class Scenario:
    """An instance; every `settle_every`-th state of it is also checked for progress. `limit` guards the time it takes."""

    title: str
    make: Callable[[frozenset[str]], Explorable]
    limit: int = 60_000
    settle_every: int = 50

    def build(self, without: frozenset[str] = frozenset()) -> Explorable:
        """The model of this instance without the named rules; ValueError when one is unknown."""
        unknown = without - RULES.keys()
        if unknown:
            raise ValueError(f"without={sorted(unknown)}: unknown rules; known are {sorted(RULES)}")
        return self.make(without)


def commit(
    title: str,
    gangs: tuple[Gang, ...],
    budget: Budget,
    *,
    nodes: int = 1,
    absent: tuple[int, ...] = (),
    bound: tuple[int, ...] = (),
    settle_every: int = 50,
    limit: int = 60_000,
) -> Scenario:
    """A scenario of the commit protocol: at the start every pod exists unbound but the `absent` ones, and the gangs in `bound` are placed."""
    names = 1 + max(name for gang in gangs for name in gang.members)
    pods = tuple(None if name in absent else Pod(name, UNBOUND) for name in range(names))
    ledger = [Entry(LEADER, 1)]
    for number in bound:
        slots = tuple(
            Slot(name, name, node)
            for name, node in zip(gangs[number].members, gangs[number].placements[0], strict=True)
        )
        ledger += [Entry(BIND, 1, number, slots, 0, 1), Entry(CLOSE, 1, refers=len(ledger) + 1, fresh=1)]
        places = {slot.name: Pod(slot.name, slot.node) for slot in slots}
        pods = tuple(places.get(name, pod) for name, pod in enumerate(pods))
    rooms = (Room.OURS,) * nodes
    leading = Leader(Role.DECIDING, pods, rooms, 1, 1, 1, 0, 0, len(ledger))
    standby = Leader(Role.STANDBY, pods, rooms, 1)
    generations = tuple(-1 if name in absent else 0 for name in range(names))
    start = World(pods, rooms, (leading, standby), budget, tuple(ledger), generations=generations, epoch=1, floor=1)
    return Scenario(
        title, lambda without: CommitProtocol(gangs, start, without=without), limit, settle_every=settle_every
    )


def watched(
    title: str,
    counts: Counts,
    *,
    changes: tuple[tuple[int, bool], ...],
    first: tuple[bool, ...] = (True,),
    in_flight: int = 0,
    limit: int = 60_000,
) -> Scenario:
    """A scenario of rule I: which keys are there `first`, what `changes` (key, there) follow, how many are in flight at the start."""

    def build(without: frozenset[str]) -> WatcherProtocol:
        return WatcherProtocol(counts, first=first, changes=changes, in_flight=in_flight, without=without)

    return Scenario(title, build, limit)


ONE_CARD = (Gang((0,), ((0,),)), Gang((1,), ((0,),)))
PREEMPTING = (Gang((0,), ((0,),)), Gang((1,), ((0,),), victims=(0,)))
PAIR_AND_ONE = (Gang((0, 1), ((0, 1),)), Gang((2,), ((0,),)))

SCENARIOS: dict[str, Scenario] = {
    "takeover": commit(
        "two gangs want one card; the leader pauses while its requests linger, another takes over",
        ONE_CARD,
        Budget(acquire=1, bind=2, undo=1),
    ),
    "undo": commit(
        "a gang of two is undone while its Bindings linger, and another wants its room",
        PAIR_AND_ONE,
        Budget(bind=2, undo=1),
        nodes=2,
    ),
    "two places": commit(
        "a gang has two places to choose from, and the leader changes",
        (Gang((0,), ((0,), (1,))),),
        Budget(acquire=1, bind=2, undo=1),
        nodes=2,
    ),
    "appends": commit(
        "appends linger and their answers are lost, across a take-over",
        ONE_CARD,
        Budget(acquire=1, bind=2, slow_append=1),
    ),
    "touches": commit(
        "a touch of the deposed leader lingers", ONE_CARD, Budget(acquire=1, bind=2, undo=1, slow_touch=1)
    ),
    "recreated": commit(
        "a bound pod is deleted and comes back under its name with a new uid",
        ONE_CARD,
        Budget(acquire=1, bind=1, delete=1, recreate=1),
        bound=(0,),
    ),
    "declared": commit(
        "a gang is placed before its pod exists, and the leader changes as it appears",
        ONE_CARD,
        Budget(acquire=1, bind=1, undo=1, recreate=1),
        absent=(0,),
    ),
    "broken": commit(
        "a member of a closed gang is deleted", PAIR_AND_ONE, Budget(bind=1, undo=1, delete=1), nodes=2, bound=(0,)
    ),
    "plan": commit(
        "a plan evicts a gang whose pod comes back",
        PREEMPTING,
        Budget(bind=2, recreate=1, plan=1, withdraw=1),
        bound=(0,),
    ),
    "plan taken over": commit(
        "a plan is executed and withdrawn across a change of leader",
        PREEMPTING,
        Budget(acquire=1, bind=1, plan=1, withdraw=1),
        bound=(0,),
    ),
    "elsewhere": commit(
        "room appears elsewhere while a plan is open",
        (Gang((0,), ((0,),)), Gang((1,), ((0,), (1,)), victims=(0,))),
        Budget(bind=1, plan=1, withdraw=1, undo=1, recreate=1),
        nodes=2,
        bound=(0,),
    ),
    "two plans": commit(
        "two gangs want the room of one victim gang",
        (Gang((0, 1), ((0, 1),)), Gang((2,), ((0,),), victims=(0,)), Gang((3,), ((1,),), victims=(0,))),
        Budget(bind=2, plan=2, withdraw=1),
        nodes=2,
        bound=(0,),
    ),
    "elsewhere taken": commit(
        "a plan's gang goes elsewhere, where another gang goes too",
        (Gang((0,), ((0,),)), Gang((1,), ((0,), (1,)), victims=(0,)), Gang((2,), ((1,),))),
        Budget(bind=2, plan=1, withdraw=1),
        nodes=2,
        bound=(0,),
    ),
    "released victim": commit(
        "a victim gang is half evicted as its plan is withdrawn",
        (Gang((0, 1), ((0, 1),)), Gang((2,), ((0,),), victims=(0,))),
        Budget(plan=1, withdraw=1, undo=1),
        nodes=2,
        bound=(0,),
    ),
    "forged victim": commit(
        "the user of a victim writes a fence on it, while its plan is executed and withdrawn",
        PREEMPTING,
        Budget(bind=1, plan=1, withdraw=1, forge=1),
        bound=(0,),
    ),
    "forged member": commit(
        "the user of a pod that waits, is being bound or is being undone writes a fence on it",
        ONE_CARD,
        Budget(bind=2, undo=1, forge=1),
    ),
    "forged taken over": commit(
        "the user of a pod writes a fence on it as the leader changes",
        ONE_CARD[:1],
        Budget(acquire=1, bind=2, undo=1, forge=1),
    ),
    "forged victim taken over": commit(
        "the user of a victim writes a fence on it as the leader changes",
        PREEMPTING,
        Budget(acquire=1, plan=1, forge=1),
        bound=(0,),
    ),
    "lost plan": commit(
        "the LEDGER is emptied while an eviction of the preemptor lingers",
        PREEMPTING,
        Budget(acquire=1, bind=1, plan=1, lose_store=1),
        bound=(0,),
    ),
    "vanished": commit("a node vanishes under a Binding", PAIR_AND_ONE, Budget(bind=2, undo=1, vanish=1), nodes=2),
    "foreign": commit("another scheduler takes the room", PAIR_AND_ONE, Budget(bind=1, undo=1, foreign=1), nodes=2),
    "lost store": commit(
        "the LEDGER is emptied while a Binding lingers", ONE_CARD, Budget(acquire=1, bind=2, lose_store=1)
    ),
    "lost undoing": commit(
        "the LEDGER is emptied while an eviction lingers", ONE_CARD[:1], Budget(acquire=1, bind=1, undo=1, lose_store=1)
    ),
    "lost twice over": commit(
        "the LEDGER is emptied, and the first leader of the new one stops half-way through its take-over",
        ONE_CARD[:1],
        Budget(acquire=2, bind=1, lose_store=1),
    ),
    "lost declared": commit(
        "the LEDGER is emptied as a declared pod appears",
        ONE_CARD,
        Budget(acquire=1, bind=2, recreate=1, lose_store=1),
        absent=(0, 1),
    ),
    "node": Scenario(
        "a node is cordoned, made removable and given back while a remover acts late",
        lambda without: NodeProtocol(verbs=3, without=without),
    ),
    "new reader": watched(
        "a watcher is replaced while its publishes are in flight, and a reader starts from the beginning",
        Counts(start=1, reset=1),
        changes=((0, True),),
    ),
    "short life": watched(
        "an object lives and dies while a watcher is replaced",
        Counts(start=1),
        first=(False,),
        changes=((0, True), (0, False)),
    ),
    "deep pipe": watched(
        "four publishes of a deposed watcher are in flight",
        Counts(start=1),
        first=(True, False),
        changes=((0, True), (0, True), (0, True), (1, True), (1, False)),
        in_flight=4,
    ),
    "overwritten": watched(
        "a stray message overwrites a good one", Counts(start=1), changes=((0, True), (0, True), (0, True)), in_flight=1
    ),
    "three watchers": watched(
        "a watcher is replaced before it has repaired anything", Counts(start=2), changes=((0, True), (0, True))
    ),
    "epochs removed": watched(
        "a watcher removes the epochs before its own",
        Counts(start=2, remove=1),
        changes=((0, True), (0, True)),
        in_flight=2,
    ),
    "stale list": watched(
        "a new watcher lists from an API server that lags",
        Counts(start=1, stale_list=1),
        changes=((0, False), (0, True)),
    ),
}

BREAKS: dict[str, str] = {
    "A-epoch-stop": "takeover",
    "A-expected-sequence-of-view": "takeover",
    "A-one-append-in-flight": "appends",
    "A-read-after-unknown": "appends",
    "A-one-open-entry": "two places",
    "B-close-only-on-state": "undo",
    "B-freshness-hold": "takeover",
    "C-touch-on-takeover": "takeover",
    "C-touch-all-named": "declared",
    "C-touch-answer": "touches",
    "C-rv-precondition": "undo",
    "C-first-attempt-fenced": "undo",
    "C-fence-monotone": "touches",
    "C-token-of-both": "takeover",
    "C-forged-is-evicted": "forged victim",
    "C-forged-proven": "plan taken over",
    "C-forged-waits": "forged member",
    "D-undo-touch": "undo",
    "D-close-on-fence": "undo",
    "D-gone-is-fresh": "declared",
    "D-terminating-holds": "takeover",
    "D-room-held-until-close": "undo",
    "D-release-new-undoing": "broken",
    "E-plan-holds-room": "plan",
    "E-victim-one-plan": "two plans",
    "E-bind-consumes": "elsewhere",
    "E-victims-gone-first": "plan",
    "E-consume-free-room": "elsewhere taken",
    "E-victim-one-entry": "released victim",
    "E-withdraw-touch": "plan",
    "E-takeover-touches-victims": "plan taken over",
    "F-uid-named": "declared",
    "F-new-uid-no-slot": "recreated",
    "F-vanished-node": "vanished",
    "H-incarnation-above": "lost store",
    "H-touch-all-unbound": "lost store",
    "H-touch-bound-too": "lost undoing",
    "H-touch-until-first-bind": "lost twice over",
    "H-view-past-the-loss": "lost declared",
    "H-view-past-the-touches": "lost store",
    "G-removable-fresh": "node",
    "G-no-unclosed-entry": "node",
    "G-version-on-nodes": "node",
    "G-fence-on-nodes": "node",
    "G-uncordon-shown": "node",
    "G-removal-grace": "node",
    "I-epoch-before-load": "short life",
    "I-reader-drops-epoch": "deep pipe",
    "I-reader-drops-older": "stale list",
    "I-reload-after-refusal": "three watchers",
    "I-republish-overwritten": "three watchers",
    "I-clock-after-answers": "short life",
    "I-clock-of-the-epoch": "stale list",
    "I-stray-voids-clock": "overwritten",
    "I-fresh-at-the-end": "short life",
    "I-epochs-kept": "three watchers",
    "I-epochs-removed-late": "epochs removed",
}
"""Rule → the scenario that breaks without it."""

WALKED: dict[str, Scenario] = {
    "everything": commit(
        "two gangs of two and a single share three cards while everything goes wrong",
        (Gang((0, 1), ((0, 1), (1, 2))), Gang((2, 3), ((0, 2), (1, 2))), Gang((4,), ((0,), (1,)))),
        Budget(
            acquire=3,
            bind=4,
            undo=3,
            slow_append=1,
            slow_touch=1,
            recreate=3,
            delete=1,
            vanish=1,
            foreign=0,
            lose_store=1,
        ),
        nodes=3,
        absent=(3,),
    ),
    "three cards": commit(
        "two gangs of two and a single share three cards, and leaders change",
        (Gang((0, 1), ((0, 1), (1, 2))), Gang((2, 3), ((0, 2), (1, 2))), Gang((4,), ((0,), (1,)))),
        Budget(acquire=3, bind=4, undo=3, slow_append=1, slow_touch=1, recreate=2, foreign=1),
        nodes=3,
    ),
    "many watchers": watched(
        "three keys change while watchers come and go",
        Counts(start=4, reset=2, remove=3),
        first=(True, True, False),
        changes=((0, True), (1, False), (2, True), (0, False), (2, False), (1, True), (0, True)),
        in_flight=2,
    ),
}
"""Larger instances, walked at random instead of exhausted."""
