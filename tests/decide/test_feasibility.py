import pytest

from muster.decide.fleet import Fleet
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.room import Room
from muster.model.nodes import CardMode, Taint
from muster.model.pods import NodeTerm, Requirement, Shape, Toleration
from tests.decide.build import gang, node, placed, reasons, request, role, run, snapshot

DEDICATED = Taint(key="dedicated", value="gpu", effect="NoSchedule")
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def labels(*requirements):
    return (NodeTerm(labels=tuple(Requirement(key=k, operator=o, values=v) for k, o, *v in requirements)),)


def term(key, operator, *values):
    return (NodeTerm(labels=(Requirement(key=key, operator=operator, values=values),)),)


def name_is(*names, operator="In"):
    return (NodeTerm(fields=(Requirement(key="metadata.name", operator=operator, values=names),)),)


@pytest.mark.parametrize(
    ("facts", "wants", "admitted"),
    [
        pytest.param({}, {}, True, id="a plain pod on a plain node"),
        pytest.param({"labels": {"a": "1"}}, {"node_selector": (("a", "1"),)}, True, id="a selector that matches"),
        pytest.param(
            {"labels": {"a": "2"}}, {"node_selector": (("a", "1"),)}, False, id="a selector with another value"
        ),
        pytest.param({}, {"node_selector": (("a", "1"),)}, False, id="a selector on a missing label"),
        pytest.param({"labels": {"a": "1"}}, {"required_nodes": term("a", "In", "1", "2")}, True, id="In"),
        pytest.param({}, {"required_nodes": term("a", "In", "1")}, False, id="In on a missing label"),
        pytest.param({"labels": {"a": "1"}}, {"required_nodes": term("a", "NotIn", "1")}, False, id="NotIn"),
        pytest.param({}, {"required_nodes": term("a", "NotIn", "1")}, True, id="NotIn holds for a missing label"),
        pytest.param(
            {"labels": {"a": ""}}, {"required_nodes": term("a", "Exists")}, True, id="Exists with an empty value"
        ),
        pytest.param({"labels": {"a": "1"}}, {"required_nodes": term("a", "DoesNotExist")}, False, id="DoesNotExist"),
        pytest.param({"labels": {"a": "9"}}, {"required_nodes": term("a", "Gt", "8")}, True, id="Gt"),
        pytest.param(
            {"labels": {"a": "9"}}, {"required_nodes": term("a", "Gt", "10")}, False, id="Gt compares numbers, not text"
        ),
        pytest.param({"labels": {"a": "x"}}, {"required_nodes": term("a", "Gt", "8")}, False, id="Gt on no number"),
        pytest.param({"labels": {"a": "-2"}}, {"required_nodes": term("a", "Lt", "-1")}, True, id="Lt below zero"),
        pytest.param(
            {}, {"required_nodes": term("a", "In", "1") + term("b", "DoesNotExist")}, True, id="terms are alternatives"
        ),
        pytest.param({}, {"required_nodes": (NodeTerm(),)}, False, id="an empty term matches nothing"),
        pytest.param({}, {"required_nodes": name_is("n1")}, True, id="matchFields by name"),
        pytest.param({}, {"required_nodes": name_is("n1", operator="NotIn")}, False, id="matchFields by another name"),
        pytest.param({"taints": (DEDICATED,)}, {}, False, id="a taint nobody tolerates"),
        pytest.param(
            {"taints": (DEDICATED,)},
            {"tolerations": (Toleration(key="dedicated", value="gpu", effect="NoSchedule"),)},
            True,
            id="a taint tolerated by value",
        ),
        pytest.param(
            {"taints": (DEDICATED,)},
            {"tolerations": (Toleration(key="dedicated", value="cpu"),)},
            False,
            id="a toleration of another value",
        ),
        pytest.param(
            {"taints": (DEDICATED,)},
            {"tolerations": (Toleration(key="dedicated", operator="Exists"),)},
            True,
            id="Exists tolerates any value and, without an effect, all effects",
        ),
        pytest.param(
            {"taints": (DEDICATED,)},
            {"tolerations": (Toleration(operator="Exists"),)},
            True,
            id="an empty key with Exists",
        ),
        pytest.param(
            {"taints": (DEDICATED,)},
            {"tolerations": (Toleration(key="dedicated", operator="Exists", effect="NoExecute"),)},
            False,
            id="a toleration of another effect",
        ),
        pytest.param(
            {"taints": (Taint(key="x", effect="PreferNoSchedule"),)}, {}, True, id="PreferNoSchedule keeps nobody out"
        ),
        pytest.param({"taints": (Taint(key="x", effect="NoExecute"),)}, {}, False, id="NoExecute keeps out too"),
        pytest.param({"unschedulable": True}, {}, False, id="a cordoned node"),
        pytest.param(
            {"unschedulable": True, "taints": (CORDON,)},
            {"tolerations": (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),)},
            True,
            id="a cordoned node with the toleration",
        ),
        pytest.param({"taints": (CORDON,)}, {}, False, id="the taint of a cordoned node alone"),
        pytest.param({"ready": False}, {}, False, id="a node that is not ready"),
        pytest.param({"terminating": True}, {}, False, id="a node that goes away"),
        pytest.param({"gpus": 1}, {"gpus": 1}, True, id="a card where there is one"),
        pytest.param({"gpus": 2, "mode": CardMode.STOCK}, {"gpus": 2}, True, id="whole cards with the stock plugin"),
        pytest.param({"gpus": 1, "mode": CardMode.STOCK}, {"mib": 1000}, False, id="a share with the stock plugin"),
        pytest.param({"gpus": 1, "mode": None}, {"mib": 1000}, False, id="a share where nobody knows the plugin"),
        pytest.param({"gpus": 1}, {"gpus": 1, "card_resource": "amd.com/gpu"}, False, id="a card of another maker"),
        pytest.param({"max_pods": 0}, {}, False, id="no pod slot"),
        pytest.param(
            {"extended": (("rdma/hca", 2),)}, {"extended": (("rdma/hca", 2),)}, True, id="an extended resource"
        ),
        pytest.param({"extended": (("rdma/hca", 1),)}, {"extended": (("rdma/hca", 2),)}, False, id="too little of it"),
        pytest.param({}, {"extended": (("rdma/hca", 1),)}, False, id="an extended resource that no node has"),
        pytest.param({"cpu": 999}, {"cpu": 1000}, False, id="too little CPU"),
        pytest.param({"memory": 1023}, {"memory": 1024}, False, id="too little memory"),
    ],
)
def test_a_node_takes_a_pod_only_when_every_predicate_and_amount_allows(facts, wants, admitted):
    asks = {key: wants.pop(key) for key in list(wants) if key not in Shape.__struct_fields__}
    extended = {key: asks.pop(key) for key in list(asks) if key in {"extended", "card_resource"}}
    shape = Shape(request=request(**asks, **extended), **wants)
    one = node(**facts)
    state = snapshot([one], [gang("g", role(shape=shape))])
    assert bool(capacity(Room(Fleet([one])), shape).sum()) is admitted
    assert (placed(run(state)) == {"g": ["n1"]}) is admitted


def test_refusals_are_counted_by_predicate():
    nodes = [
        node("a", unschedulable=True),
        node("b", ready=False),
        node("c", taints=(DEDICATED,)),
        node("d", labels={"pool": "x"}, taints=(DEDICATED,)),
    ]
    shape = Shape(node_selector=(("pool", "x"),))
    assert admission(Fleet(nodes), shape).refusals() == {"selector": 3, "taints": 2, "unschedulable": 1, "not ready": 1}
    why = reasons(run(snapshot(nodes, [gang("g", role(shape=shape))])))["g"]
    assert why.code == "NO_MATCHING_NODE"
    assert why.numbers == {"nodes": 4, "selector": 3, "taints": 2, "unschedulable": 1, "not_ready": 1}
    assert "3 do not match the nodeSelector" in why.message


def test_pods_with_one_host_port_take_a_node_each():
    shape = Shape(request=request(cpu=1), host_ports=(("TCP", 8080, ""),))
    state = snapshot([node("a"), node("b")], [gang("g", role(count=2, shape=shape))])
    assert placed(run(state)) == {"g": ["a", "b"]}
    crowded = snapshot([node("a"), node("b")], [gang("g", role(count=3, shape=shape))])
    assert placed(run(crowded)) == {}


def test_preferred_affinity_decides_before_packing():
    prefer = (NodeTerm(labels=(Requirement(key="disk", operator="In", values=("ssd",)),), weight=10),)
    shape = Shape(request=request(cpu=1000), preferred_nodes=prefer)
    nodes = [node("a", cpu=2000), node("b", cpu=64_000, labels={"disk": "ssd"})]
    assert placed(run(snapshot(nodes, [gang("g", role(shape=shape))]))) == {"g": ["b"]}


def test_a_taint_that_discourages_is_avoided_when_another_node_will_do():
    nodes = [node("a", taints=(Taint(key="spot", effect="PreferNoSchedule"),)), node("b")]
    assert placed(run(snapshot(nodes, [gang("g", role(cpu=1000))]))) == {"g": ["b"]}
