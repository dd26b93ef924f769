from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.gangs import build_snapshot
from muster.decide.placement.validate import validate
from muster.model.instructions import Place, Slot
from muster.model.nodes import Taint
from muster.model.pods import NodeTerm, Phase, Pod, PodTerm, Requirement, Shape, SpreadConstraint
from muster.model.policy import Policy
from muster.model.workloads import PodGroup
from tests.decide.build import node, placed, queue, reasons, request, run

HOST, ZONE = "kubernetes.io/hostname", "zone"
LEVELS = Policy().topology_levels


def requirement(**labels):
    return tuple(Requirement(key=key, operator="In", values=(value,)) for key, value in labels.items())


def near(key=ZONE, *, weight=0, namespaces=(), **labels):
    return PodTerm(topology_key=key, labels=requirement(**labels), weight=weight, namespaces=namespaces)


def apart(key=HOST, *, weight=0, namespaces=(), **labels):
    return PodTerm(topology_key=key, labels=requirement(**labels), anti=True, weight=weight, namespaces=namespaces)


def spread(key=ZONE, *, skew=1, required=True, least=1, **labels):
    return SpreadConstraint(
        topology_key=key, max_skew=skew, required=required, labels=requirement(**labels), min_domains=least
    )


def pod(name, *, gang="g", app="a", on=None, foreign=False, namespace="ns", terms=(), spreads=(), **more):
    shape = Shape(
        request=more.pop("request", request(cpu=1000)),
        pod_terms=tuple(terms),
        spread=tuple(spreads),
        **more.pop("shape", {}),
    )
    return Pod(
        namespace=namespace,
        name=name,
        uid=name,
        scheduler_name="other" if foreign else "muster",
        gang=None if foreign else f"{namespace}/{gang}",
        role="" if foreign else "w",
        shape=shape,
        node=on,
        phase=Phase.RUNNING if on else Phase.PENDING,
        labels={"app": app},
        **more,
    )


def pods(count, **more):
    return [pod(f"{more.get('gang', 'g')}-{number}", **more) for number in range(count)]


def nodes(*zones, **more):
    more.setdefault("cpu", 4000)
    return [
        node(f"n{number}", labels={HOST: f"n{number}"} | ({ZONE: zone} if zone else {}), **more)
        for number, zone in enumerate(zones)
    ]


def state(there, every, *, minimum=None):
    keys = sorted({one.gang for one in every if one.gang})
    groups = [
        PodGroup(
            namespace="ns",
            name=key.partition("/")[2],
            uid=key,
            min_member=minimum if minimum is not None else sum(one.gang == key for one in every),
            queue="q",
        )
        for key in keys
    ]
    return build_snapshot(there, every, groups, [queue()], [], [], [], [], Policy())


def where(there, every, **more):
    return placed(run(state(there, every, **more))).get("g")


@pytest.mark.parametrize(
    ("there", "every", "expected"),
    [
        pytest.param(
            nodes("x", "x", "x"), pods(3, terms=[apart(app="a")]), ["n0", "n1", "n2"], id="self anti-affinity: one on a node"
        ),
        pytest.param(nodes("x", "x"), pods(3, terms=[apart(app="a")]), None, id="self anti-affinity with too few nodes"),
        pytest.param(
            nodes("x", "x", "y"), pods(2, terms=[apart(ZONE, app="a")]), ["n0", "n2"], id="self anti-affinity by zone"
        ),
        pytest.param(
            nodes("x", "x"), [pod("db", app="db", on="n0", foreign=True), *pods(1, terms=[apart(app="db")])], ["n1"],
            id="away from a pod of another scheduler",
        ),
        pytest.param(
            nodes("x", "x"), [pod("db", app="db", on="n0", foreign=True, terms=[apart(app="a")]), *pods(1)], ["n1"],
            id="a running pod's anti-affinity keeps it away",
        ),
        pytest.param(
            nodes("x", "y", "y"), [pod("db", app="db", on="n1", foreign=True), *pods(2, terms=[near(app="db")])], ["n1", "n1"],
            id="beside a pod that stands",
        ),
        pytest.param(
            nodes("x", "y"), [pod("db", app="db", on="n1", foreign=True, namespace="o"), *pods(1, terms=[near(app="db")])], None,
            id="a pod of another namespace is not meant",
        ),
        pytest.param(
            nodes("x", "y"),
            [pod("db", app="db", on="n1", foreign=True, namespace="o"), *pods(1, terms=[near(app="db", namespaces=("o",))])],
            ["n1"],
            id="a pod of a named namespace is meant",
        ),
        pytest.param(
            nodes("x", "y", "y", cpu=1000), pods(2, terms=[near(app="a")]), ["n1", "n2"],
            id="the first of a company goes where all of them have room",
        ),
        pytest.param(nodes(None, None), pods(1, terms=[near(app="a")]), None, id="company needs the topology key"),
        pytest.param(
            nodes("x", "x", "y"), pods(4, spreads=[spread(app="a")]), ["n0", "n0", "n2", "n2"], id="spread evenly over zones"
        ),
        pytest.param(
            nodes("x", "y", cpu=1000), [pod("s", on="n0", app="a", foreign=True), *pods(1, spreads=[spread(app="a")])], ["n1"],
            id="spread counts pods that stand",
        ),
        pytest.param(
            nodes("x", "x"), pods(2, spreads=[spread(app="a", least=2)]), None, id="fewer domains than minDomains: one above none"
        ),
        pytest.param(
            nodes("x", "y", "y"),
            [
                pod("db", app="db", on="n0", foreign=True),
                *pods(1, terms=[near(app="db", weight=10)]),
            ],
            ["n0"],
            id="preferred company",
        ),
        pytest.param(
            nodes("x", "y"), [pod("db", app="db", on="n0", foreign=True), *pods(1, terms=[apart(app="db", weight=10)])], ["n1"],
            id="preferred distance",
        ),
        pytest.param(
            nodes("x", "y"), pods(2, spreads=[spread(app="a", required=False)]), ["n0", "n1"], id="ScheduleAnyway spreads where it can"
        ),
        pytest.param(
            nodes("x", cpu=9000), pods(3, spreads=[spread(app="a", required=False)]), ["n0"] * 3,
            id="ScheduleAnyway never keeps a pod from running",
        ),
    ],
)  # fmt: skip
def test_terms_between_pods(there, every, expected):
    assert where(there, every) == expected


def test_a_taint_that_is_only_preferred_is_kept_away_from():
    there = nodes("x", "x")
    there[0] = msgspec.structs.replace(there[0], taints=(Taint(key="old", effect="PreferNoSchedule"),))
    assert where(there, pods(2)) == ["n1", "n1"]


def test_preferred_node_affinity_is_followed():
    term = NodeTerm(labels=requirement(zone="y"), weight=5)
    assert where(nodes("x", "y"), pods(1, shape={"preferred_nodes": (term,)})) == ["n1"]


def test_gangs_of_one_round_keep_from_each_other():
    every = [*pods(1, gang="g", app="a", terms=[apart(app="b")]), *pods(1, gang="h", app="b")]
    found = placed(run(state(nodes("x", "x"), every)))
    assert found["g"] != found["h"]


@pytest.mark.parametrize(
    ("there", "every", "code", "says"),
    [
        pytest.param(
            nodes("x", "x"), [*pods(1, gang="g", terms=[apart(ZONE, app="db")]), pod("db", app="db", on="n0", foreign=True)],
            "POD_AFFINITY_UNFIT", "2 nodes beside pods that anti-affinity keeps apart", id="anti-affinity",
        ),
        pytest.param(
            nodes("x"), pods(1, terms=[near(app="db")]), "POD_AFFINITY_UNFIT", "not beside the pods that its pod affinity",
            id="nobody to be beside",
        ),
        pytest.param(
            nodes("x"), pods(1, terms=[near(app="a", namespaces=("",))]), "POD_AFFINITY_UNSUPPORTED", "namespaceSelector",
            id="namespaces by their labels",
        ),
        pytest.param(
            nodes("x", None), pods(4, spreads=[spread(app="a", least=2)]), "SPREAD_UNFIT", "spread", id="spread",
        ),
    ],
)  # fmt: skip
def test_the_reason_says_which_terms(there, every, code, says):
    why = reasons(run(state(there, every)))["g"]
    assert why.code == code, why
    assert says in why.message, why.message


def test_without_terms_that_matter_no_labels_are_carried():
    lone = pod("db", app="db", on="n0", foreign=True, terms=[apart(app="other")])
    found = state(nodes("x"), [lone, *pods(1)])
    assert not found.pod_terms
    assert found.gangs[0].roles[0].shape.labels == ()


def test_pods_that_differ_only_in_labels_nobody_asks_about_are_one_shape():
    every = [
        msgspec.structs.replace(one, labels={"app": "a", "index": one.name}) for one in pods(3, terms=[apart(app="a")])
    ]
    assert where(nodes("x", "x", "x"), every) == ["n0", "n1", "n2"]


# The validator against a brute-force oracle: a plan is sound when some order of putting the pods down is allowed at every step.


def allowed_now(one, at, there, every_node):
    """Kubernetes' filters for one pod, word by word; `there` are (pod, node) pairs."""
    wanted = [term for term in one.shape.pod_terms if not term.anti]
    counts = Counter(
        (term.topology_key, to.labels[term.topology_key])
        for other, to in there
        if all(other.labels["app"] in term.labels[0].values for term in wanted)
        for term in wanted
        if term.topology_key in to.labels
    )
    if any(term.topology_key not in at.labels for term in wanted):
        return False
    exist = all(counts[term.topology_key, at.labels[term.topology_key]] for term in wanted)
    if not exist and (counts or any(one.labels["app"] not in term.labels[0].values for term in wanted)):
        return False
    for term in one.shape.pod_terms:
        domain = at.labels.get(term.topology_key)
        met = [to for other, to in there if other.labels["app"] in term.labels[0].values]
        if term.anti and domain is not None and any(to.labels.get(term.topology_key) == domain for to in met):
            return False
    for other, to in there:
        for term in other.shape.pod_terms:
            same = to.labels.get(term.topology_key) is not None and to.labels.get(term.topology_key) == at.labels.get(
                term.topology_key
            )
            if term.anti and one.labels["app"] in term.labels[0].values and same:
                return False
    for constraint in one.shape.spread:
        key = constraint.topology_key
        counts = {each.labels[key]: 0 for each in every_node if key in each.labels}
        if key not in at.labels:
            return False
        for other, to in there:
            if key in to.labels and other.labels["app"] in constraint.labels[0].values:
                counts[to.labels[key]] += 1
        own = one.labels["app"] in constraint.labels[0].values
        if counts[at.labels[key]] + own - min(counts.values()) > constraint.max_skew:
            return False
    return True


def some_order(pairs, there, every_node):
    if not pairs:
        return True
    return any(
        allowed_now(*pair, there, every_node)
        and some_order(pairs[:number] + pairs[number + 1 :], [*there, pair], every_node)
        for number, pair in enumerate(pairs)
    )


TERMS = st.lists(
    st.builds(
        lambda anti, key, app: PodTerm(topology_key=key, anti=anti, labels=requirement(app=app)),
        st.booleans(),
        st.sampled_from([HOST, ZONE]),
        st.sampled_from("ab"),
    ),
    max_size=2,
)
SPREADS = st.lists(
    st.builds(lambda skew, app: spread(skew=skew, app=app), st.integers(1, 2), st.sampled_from("ab")), max_size=1
)


@st.composite
def clusters(draw):
    zones = draw(st.lists(st.sampled_from(["x", "y", None]), min_size=2, max_size=4))
    there = nodes(*zones, cpu=64_000)
    names = st.sampled_from([one.name for one in there])
    stands = [
        pod(f"s{number}", app=draw(st.sampled_from("ab")), on=draw(names), foreign=True, terms=draw(TERMS))
        for number in range(draw(st.integers(0, 2)))
    ]
    waits = pods(draw(st.integers(1, 3)), app=draw(st.sampled_from("ab")), terms=draw(TERMS), spreads=draw(SPREADS))
    return SimpleNamespace(nodes=there, stands=stands, waits=waits, targets=[draw(names) for _ in waits])


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_the_validator_agrees_with_every_order_tried(one):
    shot = state(one.nodes, [*one.stands, *one.waits])
    slots = tuple(
        Slot(uid=each.uid, pod=each.name, role="w", node=to) for each, to in zip(one.waits, one.targets, strict=True)
    )
    problems = validate(shot, [Place(gang="ns/g", gang_uid="ns/g", slots=slots)], levels=LEVELS)
    by_name = {each.name: each for each in one.nodes}
    there = [(each, by_name[each.node]) for each in one.stands]
    # Only anti-affinity of pods that stand counts against others; their own wishes for company are history.
    pairs = [(each, by_name[to]) for each, to in zip(one.waits, one.targets, strict=True)]
    assert (problems == []) == some_order(pairs, there, one.nodes), problems


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_what_is_placed_is_sound_and_a_single_pod_is_placed_when_it_can_be(one):
    every = [*one.stands, one.waits[0]]
    found = where(one.nodes, every)
    by_name = {each.name: each for each in one.nodes}
    there = [(each, by_name[each.node]) for each in one.stands]
    possible = [each for each in one.nodes if allowed_now(one.waits[0], each, there, one.nodes)]
    assert bool(found) == bool(possible)
    decision = run(state(one.nodes, [*one.stands, *one.waits]))
    assert all(why.code != "PLAN_REJECTED" for why in reasons(decision).values())
