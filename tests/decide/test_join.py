"""The snapshot and what is derived from it, kept up to date, against both made from nothing."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.basis import Basis, start_of
from muster.decide.commitments import Kind, LedgerView, Lingering, OpenEntry, holds
from muster.decide.gangs import build_snapshot
from muster.decide.join import Join, being_carried_out
from muster.decide.memory import CoreMemory
from muster.decide.placement.recount import Recount
from muster.decide.scheduling import decide
from muster.decide.surroundings import Surroundings
from muster.model.budgets import Budget
from muster.model.instructions import Slot
from muster.model.ledger import Victim
from muster.model.nodes import Card, CardMode, Taint
from muster.model.pods import CardUse, NodeTerm, Owner, Phase, Pod, PodTerm, Requirement, Shape
from muster.model.policy import Policy
from muster.model.topology import HyperMember, HyperNode
from muster.model.volumes import Claim, StorageClass, Volume
from muster.model.workloads import Limits, Namespace, PodGroup, PriorityClass, Queue, Workload
from tests.decide.build import node, request, whole

POLICY = Policy(topology_levels=("rack",))
NAMES = ("n1", "n2", "n3", "n4")
NAMESPACES = ("a", "b")
APART = PodTerm(topology_key="rack", labels=(Requirement(key="app", operator="In", values=("x",)),), anti=True)
SHAPES = (
    Shape(request=request(cpu=1000, gpus=1)),
    Shape(request=request(cpu=500)),
    Shape(request=request(cpu=100, mib=1000, core=10)),
    Shape(request=request(cpu=100, gpus=2), node_selector=(("rack", "r1"),)),
    Shape(request=request(cpu=200), host_ports=(("TCP", 80, ""),)),
    Shape(request=request(extended=(("example.com/nic", 1),))),
    Shape(request=request(cpu=100), claims=("data",)),
    Shape(request=request(cpu=100), claims=("more",)),
    Shape(request=request(cpu=100), claims=("data", "more")),
    Shape(request=request(cpu=100), pod_terms=(APART,)),
)
CLAIMING = tuple(shape for shape in SHAPES if shape.claims)
MARKS = (
    {},
    {"muster.dev/min-runtime": "10m", "muster.dev/last-checkpoint": "60"},
    {"volcano.sh/cooldown-time": "1h", "muster.dev/expected-duration": "nonsense"},
)


class Truth:
    """STATE and the LEDGER's view, changed at random."""

    def __init__(self, rng: random.Random, shapes: tuple[Shape, ...] = SHAPES) -> None:
        self.rng = rng
        self.shapes = shapes
        self.tables: dict[str, dict[str, object]] = {
            kind: {}
            for kind in (
                "pod",
                "node",
                "podgroup",
                "queue",
                "workload",
                "namespace",
                "priorityclass",
                "hypernode",
                "claim",
                "volume",
                "storageclass",
                "pdb",
            )
        }
        self.view = LedgerView()
        self.sequence = 0
        self.uids = 0

    def change(self) -> tuple[str, str]:
        """Change, make or remove one object; its kind and key."""
        rng = self.rng
        kind = rng.choices(
            list(self.tables), weights=(30, 4, 6, 1, 2, 1, 1, 1 if rng.random() < 0.3 else 0, 2, 2, 2, 2)
        )[0]
        table = self.tables[kind]
        make = getattr(self, f"_{kind}")
        key, value = make()
        if rng.random() < (0.1 if kind in {"pod", "node"} else 0.2):
            table.pop(key, None)
        else:
            table[key] = value
        return kind, key

    def _pod(self):
        rng = self.rng
        key = f"{rng.choice(NAMESPACES)}/p{rng.randrange(10)}"
        before = self.tables["pod"].get(key)
        if before is not None and rng.random() < 0.8:
            where = rng.choice((before.node, *NAMES, None)) if rng.random() < 0.6 else before.node
            cards = rng.choice(
                ((), whole(0), whole(1, 2), (CardUse(index=1, memory_mib=1000, core_percent=10),), whole(9))
            )
            return key, msgspec.structs.replace(
                before,
                node=where,
                cards=cards if where is not None else (),
                phase=rng.choice((before.phase, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, Phase.PENDING)),
                terminating=rng.random() < 0.2,
                gated=rng.random() < 0.1,
                nominated_node=rng.choice((None, "n1")),
                started=rng.choice((before.started, before.started, 50.0, 70.0, None)),
                annotations=rng.choice((before.annotations, *MARKS)),
                resource_version=str(self._next()),
            )
        namespace, name = key.split("/")
        return key, Pod(
            namespace=namespace,
            name=name,
            uid=f"u{self._next()}",
            scheduler_name=rng.choice(("muster", "muster", "muster", "default-scheduler")),
            gang=rng.choice((None, "a/g1", "a/g2", "b/g1")),
            role=rng.choice(("w", "ps")),
            shape=rng.choice(self.shapes[: rng.choice((1, 1, 3, len(self.shapes)))]),
            priority=rng.randrange(2),
            labels=rng.choice(({}, {"app": "x"}, {"app": "y", "other": "z"})),
            created=float(rng.randrange(3)),
            annotations=rng.choice(MARKS),
            active_deadline=rng.choice((0.0, 0.0, 500.0)),
            owner=Owner(api_version="v1", kind="Job", name="j", uid="w1"),
        )

    def _next(self) -> int:
        self.uids += 1
        return self.uids

    def _node(self):
        rng = self.rng
        name = rng.choice(NAMES)
        made = node(
            name,
            gpus=rng.choice((0, 4, 4, 4)),
            card_mib=rng.choice((2000, 4000)),
            mode=rng.choice((CardMode.VOLCANO, CardMode.VOLCANO, CardMode.STOCK)),
            labels=rng.choice(({}, {"rack": "r1"}, {"rack": "r2"})),
            ready=rng.random() < 0.8,
            unschedulable=rng.random() < 0.1,
            taints=rng.choice(((), (Taint(key="t", effect="NoSchedule"),))),
            extended=rng.choice(((), (("example.com/nic", 4),))),
            resource_version=str(self._next()),
        )
        if made.cards and rng.random() < 0.3:
            made = msgspec.structs.replace(made, cards=(Card(index=0, memory_mib=500, healthy=False), *made.cards[1:]))
        return name, made

    def _podgroup(self):
        rng = self.rng
        namespace, name = rng.choice(("a/g1", "a/g2", "b/g1", "b/g3")).split("/")
        return f"{namespace}/{name}", PodGroup(
            namespace=namespace,
            name=name,
            uid=f"uid-{namespace}-{name}",
            min_member=rng.randrange(1, 4),
            min_task_member=rng.choice(({}, {"ps": 1})),
            queue=rng.choice(("q1", "q2", "nowhere")),
            priority_class=rng.choice(("", "high")),
            annotations=rng.choice(MARKS),
            owner=rng.choice((None, Owner(api_version="v1", kind="Job", name="j", uid=rng.choice(("w1", "w2"))))),
            terminating=rng.random() < 0.1,
            created=float(rng.randrange(3)),
        )

    def _queue(self):
        name = self.rng.choice(("q1", "q2"))
        guarantee = Limits(amounts={"gpu": 2_000_000}) if self.rng.random() < 0.5 else Limits()
        return name, Queue(name=name, guarantee=guarantee, capability=Limits(amounts={"gpu": 6_000_000}))

    def _workload(self):
        uid = self.rng.choice(("w1", "w2"))
        return f"vcjob/a/{uid}", Workload(
            kind="vcjob",
            namespace="a",
            name=uid,
            uid=uid,
            terminating=self.rng.random() < 0.4,
            spec=self.rng.choice(({}, {"activeDeadlineSeconds": 300}, {"runningEstimate": "10m"})),
        )

    def _namespace(self):
        name = self.rng.choice(NAMESPACES)
        return name, Namespace(name=name, terminating=self.rng.random() < 0.4)

    def _priorityclass(self):
        return "high", PriorityClass(name="high", value=self.rng.randrange(5))

    def _hypernode(self):
        member = HyperMember(name=self.rng.choice(NAMES))
        return "h1", HyperNode(name="h1", tier=1, members=(member,))

    def _claim(self):
        rng = self.rng
        namespace, bound, name = rng.choice(NAMESPACES), rng.random() < 0.4, rng.choice(("data", "more"))
        return f"{namespace}/{name}", Claim(
            namespace=namespace,
            name=name,
            uid=f"{namespace}-{name}",
            bound=bound,
            volume=rng.choice(("v", "w")) if bound else "",
            storage_class=rng.choice(("local", "later")),
            selected_node=rng.choice(("", "", "n1")),
            access_modes=rng.choice(((), ("ReadWriteOncePod",))),
            size=rng.choice((1, 2)),
        )

    def _volume(self):
        rng = self.rng
        name = rng.choice(("v", "w", "x"))
        pins = rng.choice((("n1",), ("n2",), ("n1", "n2"), ()))
        term = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=pins),))
        return name, Volume(
            name=name,
            nodes=(term,) if pins else (),
            storage_class="local",
            size=rng.choice((1, 2, 3)),
            access_modes=("ReadWriteOncePod",),
            free=rng.random() < 0.8,
            claim=rng.choice(("", "", "a/data")),
        )

    def _storageclass(self):
        name = self.rng.choice(("local", "later"))
        return name, StorageClass(
            name=name,
            waits_for_pod=self.rng.random() < 0.8,
            provisioner="kubernetes.io/no-provisioner" if name == "local" else "csi.example.com",
        )

    def _pdb(self):
        rng = self.rng
        namespace, name = rng.choice(("a/b1", "a/b2", "b/b1")).split("/")
        return f"{namespace}/{name}", Budget(
            namespace=namespace,
            name=name,
            selector=rng.choice(((), (Requirement(key="app", operator="In", values=("x",)),))),
            selects_nothing=rng.random() < 0.1,
            allowed=rng.randrange(3),
        )

    def commit(self) -> None:
        """Open, close or undo an entry, or forget what lingers."""
        rng, view = self.rng, self.view
        self.sequence += 1
        opened, lingering = dict(view.open), list(view.lingering)
        roll = rng.random()
        if roll < 0.6:
            gang = rng.choice(("a/g1", "a/g2", "b/g1"))
            taken = {slot.uid for key, entry in opened.items() if key != gang for slot in entry.slots}
            pods = [pod for pod in self.tables["pod"].values() if pod.uid not in taken]
            some = rng.sample(pods, min(len(pods), rng.randrange(1, 4)))
            slots = tuple(
                Slot(
                    uid=pod.uid,
                    pod=pod.name,
                    role=pod.role,
                    node=rng.choice(NAMES),
                    cards=rng.choice(((), whole(3))),
                    request=rng.choice((pod.shape.request, None)),
                )
                for pod in some
            )
            replaced = opened.get(gang)
            if replaced is not None and rng.random() < 0.5:
                lingering.append(Lingering(gang=gang, slots=replaced.slots, freshness="1"))
            kind = rng.choice((Kind.BIND, Kind.UNDOING))
            opened[gang] = OpenEntry(
                sequence=self.sequence, kind=kind, gang=gang, gang_uid="u", slots=slots, at=0.0, reason="R"
            )
        elif roll < 0.7:
            gang = rng.choice(("a/g1", "a/g2", "b/g1"))
            ours = [pod for pod in self.tables["pod"].values() if pod.gang is not None and pod.gang != gang]
            victims = tuple(
                Victim(gang=pod.gang, uid=pod.uid, pod=pod.name, node=pod.node or NAMES[0])
                for pod in rng.sample(ours, min(len(ours), rng.randrange(1, 3)))
            )
            kind = rng.choice((Kind.PLAN, Kind.WITHDRAWING))
            opened[gang] = OpenEntry(
                sequence=self.sequence, kind=kind, gang=gang, gang_uid="u", slots=(), at=0.0, victims=victims
            )
        elif roll < 0.85 and opened:
            closed = opened.pop(rng.choice(sorted(opened)))
            lingering.append(Lingering(gang=closed.gang, slots=closed.slots, freshness="1"))
        elif lingering:
            lingering.pop(rng.randrange(len(lingering)))
        self.view = LedgerView(sequence=self.sequence, open=opened, lingering=tuple(lingering))

    def snapshot(self):
        """Everything from nothing."""
        tables = self.tables
        by_uid = {pod.uid: pod for pod in tables["pod"].values()}
        built = build_snapshot(
            *(
                tables[kind].values()
                for kind in ("node", "pod", "podgroup", "queue", "workload", "priorityclass", "namespace")
            ),
            holds(self.view, by_uid),
            POLICY,
            Surroundings(
                hypernodes=tuple(one for _, one in sorted(tables["hypernode"].items())),
                claims=tables["claim"],
                volumes=tables["volume"],
                storage_classes=tables["storageclass"],
                budgets=tuple(tables["pdb"].values()),
            ),
        )
        victims = self.view.victims()
        gangs = tuple(being_carried_out(gang, self.view.open.get(gang.key), victims) for gang in built.gangs)
        return msgspec.structs.replace(built, gangs=gangs)


def assert_same_room(kept, made):
    for name in ("free", "card_memory", "card_core", "card_users", "lost_users", "whole_free"):
        mine, other = getattr(kept, name), getattr(made, name)
        if mine.ndim == 2:
            mine, spare = mine[:, : other.shape[1]], mine[:, other.shape[1] :]
            assert not spare.any(), name
        assert np.array_equal(mine, other), (name, mine, other)
    assert kept.ports == made.ports
    stand = [
        {kind: counts.tolist() for kind, counts in room.neighbours.counts.items() if counts.any()}
        if room.neighbours is not None
        else {}
        for room in (kept, made)
    ]
    assert stand[0] == stand[1]


def assert_same_start(kept, made):
    assert kept.fleet.names == made.fleet.names
    for name in ("total", "ready", "unschedulable", "allocatable_cards", "shares_cards", "card_resources"):
        assert np.array_equal(getattr(kept.fleet, name), getattr(made.fleet, name)), name
    assert [kept.fleet.taint_sets[code] for code in kept.fleet.taint_codes] == [
        made.fleet.taint_sets[code] for code in made.fleet.taint_codes
    ]
    assert kept.fleet.levels == made.fleet.levels
    assert_same_room(kept.room, made.room)
    assert_same_room(kept.empty, made.empty)
    assert kept.tree.usage == made.tree.usage
    assert kept.tree.guaranteed == made.tree.guaranteed
    assert kept.asks == made.asks


@pytest.mark.parametrize(
    "shapes",
    [pytest.param(SHAPES, id="all kinds of pods"), pytest.param(CLAIMING, id="pods that mount claims")],
)
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_after_any_changes_the_kept_snapshot_room_usage_and_asks_are_those_made_from_nothing(rng, shapes):
    truth, join, basis = Truth(rng, shapes), Join(POLICY), Basis()
    for _ in range(30):
        for _ in range(rng.choice((1, 1, 3, 10))):
            kind, key = truth.change()
            join.change(kind, key, truth.tables[kind].get(key))
        if rng.random() < 0.5:
            truth.commit()
        join.follow(truth.view)
        expected = truth.snapshot()
        state = join.snapshot()
        for part in ("nodes", "queues", "occupants", "gangs", "holds", "hypernodes", "pod_terms"):
            assert getattr(state, part) == getattr(expected, part), part
        assert state == expected
        basis.note(join.take_changes(everything=basis.lost))
        if rng.random() < 0.3:
            continue  # changes of several snapshots add up
        assert_same_start(basis.start(state), start_of(state))
        basis.give_back()


@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_a_decision_from_what_was_kept_is_the_decision_from_nothing(rng):
    truth, join, basis = Truth(rng), Join(POLICY), Basis()
    memory = CoreMemory()
    for _ in range(12):
        for _ in range(rng.choice((1, 5, 20))):
            kind, key = truth.change()
            join.change(kind, key, truth.tables[kind].get(key))
        join.follow(truth.view)
        state = join.snapshot()
        basis.note(join.take_changes(everything=basis.lost))
        kept = decide(state, memory, 100.0, POLICY, basis=basis)
        assert kept == decide(state, memory, 100.0, POLICY)
        memory = kept.memory


@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_validators_kept_count_is_the_one_made_from_nothing(rng):
    truth, join, kept = Truth(rng), Join(POLICY), Recount()
    for _ in range(20):
        for _ in range(rng.choice((1, 5))):
            kind, key = truth.change()
            join.change(kind, key, truth.tables[kind].get(key))
        if rng.random() < 0.5:
            truth.commit()
        join.follow(truth.view)
        state, made = join.snapshot(), Recount()
        kept.follow(state)
        made.follow(state)
        for name in NAMES:
            assert sorted(map(repr, kept.on(name))) == sorted(map(repr, made.on(name)))
        used = [one.usage({"q1", "q2"}) for one in (kept, made)]
        some = [{name: {r: n for r, n in of.items() if n} for name, of in one.items()} for one in used]
        assert some[0] == some[1]


def test_a_basis_that_failed_wants_everything_again():
    truth, join, basis = Truth(random.Random(1)), Join(POLICY), Basis()
    for _ in range(40):
        kind, key = truth.change()
        join.change(kind, key, truth.tables[kind].get(key))
    state = join.snapshot()
    changes = join.take_changes()
    broken = changes._replace(gangs={place: object() for place in changes.gangs})
    basis.note(broken)
    with pytest.raises(AttributeError):
        basis.start(state)
    assert basis.lost
    basis.note(join.take_changes(everything=True))
    assert_same_start(basis.start(state), start_of(state))
