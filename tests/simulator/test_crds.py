"""The CRD schemas accept what Volcano's users write, and refuse what is wrong; the columns are those they know."""

from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from muster.simulator.cluster import seed
from muster.simulator.crds import crd_directory, load_crds
from muster.simulator.errors import ApiError
from muster.simulator.store import Store

SHARED = sorted((Path(__file__).parents[3] / "shared" / "manifests").glob("*.yaml"))
PLURALS = {
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): "podgroups.scheduling.volcano.sh",
    ("scheduling.volcano.sh/v1beta1", "Queue"): "queues.scheduling.volcano.sh",
    ("batch.volcano.sh/v1alpha1", "Job"): "jobs.batch.volcano.sh",
    ("topology.volcano.sh/v1alpha1", "HyperNode"): "hypernodes.topology.volcano.sh",
    ("bus.volcano.sh/v1alpha1", "Command"): "commands.bus.volcano.sh",
    ("scheduling.k8s.io/v1", "PriorityClass"): "priorityclasses.scheduling.k8s.io",
    ("batch/v1", "Job"): "jobs.batch",
    ("v1", "Namespace"): "namespaces",
}


@pytest.fixture
def store():
    store = Store(seed=1)
    seed(store)
    return store


def create(store, obj):
    return store.create(PLURALS[obj["apiVersion"], obj["kind"]], obj)


def job(**spec):
    task = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"minAvailable": 1, "tasks": [task], **spec},
    }


def task(**fields):
    return {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}, **fields}


def pod_group(**spec):
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def queue(**spec):
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}


def hyper_node(**spec):
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": "h"}, "spec": spec}


def command(**fields):
    return {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": "c"}, **fields}


def member(**selector):
    return {"type": "Node", "selector": selector}


TARGET = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}

ACCEPTED = [
    pytest.param(pod_group(), id="an empty PodGroup"),
    pytest.param(
        pod_group(
            minMember=4,
            minTaskMember={"ps": 1, "worker": 3},
            queue="q",
            priorityClassName="high",
            minResources={"nvidia.com/gpu": 8, "cpu": "500m"},
        ),
        id="a PodGroup with minimums by task and in resources",
    ),
    pytest.param(
        pod_group(
            minMember=8,
            networkTopology={"mode": "soft", "highestTierName": "rack"},
            subGroupPolicy=[
                {
                    "name": "s",
                    "subGroupSize": 4,
                    "minSubGroups": 2,
                    "labelSelector": {"matchLabels": {"a": "b"}},
                    "matchLabelKeys": ["k"],
                }
            ],
        ),
        id="a PodGroup with sub-groups",
    ),
    pytest.param(queue(), id="an empty Queue"),
    pytest.param(
        queue(
            weight=2,
            capability={"gpu": 20, "cpu": "100", "memory": "1Ti"},
            deserved={"gpu": 15},
            guarantee={"resource": {"gpu": "1.5"}},
            reclaimable=False,
            parent="root",
            priority=-3,
            type="t",
            dequeueStrategy="fifo",
            affinity={"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}},
            extendClusters=[{"name": "c", "weight": 1, "capacity": {"cpu": 1}}],
        ),
        id="a Queue with every field",
    ),
    pytest.param(job(), id="the smallest Job"),
    pytest.param(
        job(
            schedulerName="volcano",
            queue="team-a.prod",
            maxRetry=5,
            ttlSecondsAfterFinished=60,
            priorityClassName="high",
            minSuccess=1,
            runningEstimate="90m",
            plugins={"svc": ["--publish-not-ready-addresses=true"], "env": [], "ssh": [], "pytorch": ["--master=m"]},
            policies=[
                {"event": "PodFailed", "action": "RestartJob"},
                {"events": ["PodEvicted", "*"], "action": "AbortJob", "timeout": "30s"},
            ],
            volumes=[
                {"mountPath": "/data", "volumeClaimName": "d"},
                {"mountPath": "/o", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}},
            ],
            networkTopology={"mode": "hard", "highestTierAllowed": 2},
            tasks=[
                task(
                    replicas=4,
                    minAvailable=2,
                    maxRetry=3,
                    topologyPolicy="best-effort",
                    policies=[{"exitCode": 3, "action": "RestartPod"}],
                    dependsOn={"name": ["ps"], "iteration": "any"},
                    partitionPolicy={
                        "totalPartitions": 2,
                        "partitionSize": 2,
                        "minPartitions": 1,
                        "networkTopology": {"highestTierAllowed": 1},
                    },
                )
            ],
        ),
        id="a Job with every field",
    ),
    pytest.param(
        hyper_node(
            tier=1, tierName="rack", members=[member(exactMatch={"name": "n1"}), member(regexMatch={"pattern": "n-.*"})]
        ),
        id="a HyperNode by name and expression",
    ),
    pytest.param(
        hyper_node(
            tier=0, members=[member(labelMatch={"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]})]
        ),
        id="a HyperNode by labels",
    ),
    pytest.param(command(action="AbortJob", target=TARGET, reason="r", message="m"), id="a Command"),
]

REFUSED = [
    pytest.param(pod_group(minMember="four"), "spec.minMember", id="a minimum that is no number"),
    pytest.param(
        pod_group(networkTopology={"mode": "strict"}),
        "spec.networkTopology.mode",
        id="a topology mode that does not exist",
    ),
    pytest.param(queue(weight="heavy"), "spec.weight", id="a weight that is no number"),
    pytest.param(queue(capability={"gpu": [20]}), "spec.capability", id="a list as a quantity"),
    pytest.param(queue(deserved={"gpu": 1.5}), "spec.deserved", id="a bare fraction as a quantity, as Kubernetes"),
    pytest.param(queue(dequeueStrategy="lifo"), "spec.dequeueStrategy", id="a dequeue strategy that does not exist"),
    pytest.param(job(minAvailable=-1), "spec.minAvailable", id="a negative minimum"),
    pytest.param(job(tasks=[]), "spec.tasks", id="no tasks"),
    pytest.param(job(tasks=[task(name="Bad_Name")]), "spec.tasks[0].name", id="a task name that is no label"),
    pytest.param(job(tasks=[task(replicas=-2)]), "spec.tasks[0].replicas", id="negative replicas"),
    pytest.param(
        job(tasks=[task(template={"spec": {}})]),
        "spec.tasks[0].template.spec.containers",
        id="a template without containers",
    ),
    pytest.param(
        job(tasks=[task(topologyPolicy="near")]), "spec.tasks[0].topologyPolicy", id="a NUMA policy that does not exist"
    ),
    pytest.param(job(queue="Team A"), "spec.queue", id="a queue name that is no name"),
    pytest.param(job(plugins={"svc": "yes"}), "spec.plugins.svc", id="plugin arguments that are no list"),
    pytest.param(
        job(volumes=[{"volumeClaimName": "d"}]), "spec.volumes[0].mountPath", id="a volume without a mount path"
    ),
    pytest.param(hyper_node(members=[member(exactMatch={"name": "n"})]), "spec.tier", id="a HyperNode without a tier"),
    pytest.param(
        hyper_node(tier=1, members=[member()]), "spec.members[0].selector", id="a selector that selects nothing"
    ),
    pytest.param(
        hyper_node(tier=1, members=[member(exactMatch={"name": "n"}, regexMatch={"pattern": "x"})]),
        "spec.members[0].selector",
        id="two selectors at once",
    ),
    pytest.param(
        hyper_node(tier=1, members=[{"type": "Rack", "selector": {"exactMatch": {"name": "n"}}}]),
        "spec.members[0].type",
        id="a member that is no node",
    ),
    pytest.param(command(action="AbortJob", target={"kind": "Job"}), "target", id="a target without a name"),
]


@pytest.mark.parametrize("obj", ACCEPTED)
def test_the_schemas_accept(store, obj):
    made = create(store, obj)
    for part in ("spec", "action", "target"):
        if part in obj:
            # Nothing is pruned: every field the user wrote is a field the schema knows.
            assert _without_defaults(made[part], obj[part]) == obj[part]


def _without_defaults(made, given):
    if isinstance(given, dict):
        return {key: _without_defaults(made[key], value) for key, value in given.items()}
    if isinstance(given, list):
        return [_without_defaults(m, g) for m, g in zip(made, given, strict=True)]
    return made


@pytest.mark.parametrize(("obj", "field"), REFUSED)
def test_the_schemas_refuse_and_name_the_field(store, obj, field):
    with pytest.raises(ApiError) as refused:
        create(store, obj)
    assert refused.value.code == 422
    assert field in refused.value.message


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(pod_group(minResources={"cpu": "1 core"}), id="a quantity with a word"),
        pytest.param(queue(capability={"memory": "10Gib"}), id="a unit that does not exist"),
        pytest.param(
            job(
                tasks=[
                    task(
                        template={
                            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "one"}}}]}
                        }
                    )
                ]
            ),
            id="a GPU count in words",
        ),
    ],
)
def test_the_schemas_themselves_refuse_quantities_that_are_none(wrong):
    schema = _schema(wrong)
    assert not jsonschema_rs.is_valid(schema, wrong)


@pytest.mark.parametrize("amount", [8, "8", "1.5", "500m", "64Gi", "1e3", "-1", ".5", "10k"])
def test_the_schemas_take_every_spelling_of_a_quantity(amount):
    right = queue(capability={"gpu": amount})
    assert jsonschema_rs.is_valid(_schema(right), right)


def _schema(obj):
    crd = next(crd for crd in load_crds() if crd["metadata"]["name"] == PLURALS[obj["apiVersion"], obj["kind"]])
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_defaults_are_volcanos(store):
    assert create(store, pod_group(networkTopology={}))["spec"] == {
        "queue": "default",
        "networkTopology": {"mode": "hard"},
    }
    spec = create(store, job())["spec"]
    assert (spec["queue"], spec["maxRetry"]) == ("default", 3)


def test_pod_templates_keep_every_field(store):
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "resources": {"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "x"}]},
                    "securityContext": {"privileged": False},
                }
            ],
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "somethingNew": {"x": 1},
        },
    }
    assert create(store, job(tasks=[task(template=template)]))["spec"]["tasks"][0]["template"] == template


def test_status_is_a_subresource_of_its_own(store):
    made = create(store, {**pod_group(minMember=2), "status": {"phase": "Running"}})
    assert "status" not in made
    key = PLURALS[made["apiVersion"], "PodGroup"]
    store.patch(
        key,
        "default",
        "g",
        {"status": {"phase": "Inqueue", "running": 1}, "spec": {"minMember": 9}},
        subresource="status",
    )
    after = store.get(key, "default", "g")
    assert (after["status"], after["spec"]["minMember"]) == ({"phase": "Inqueue", "running": 1}, 2)
    with pytest.raises(ApiError, match=r"status\.running"):
        store.patch(key, "default", "g", {"status": {"running": "many"}}, subresource="status")


@pytest.mark.parametrize(
    ("name", "short", "columns"),
    [
        ("jobs.batch.volcano.sh", ["vcjob", "vj"], ["STATUS", "minAvailable", "RUNNINGS", "AGE"]),
        ("podgroups.scheduling.volcano.sh", ["pg", "podgroup-v1beta1"], ["STATUS", "minMember", "RUNNINGS", "AGE"]),
        ("queues.scheduling.volcano.sh", ["q", "queue-v1beta1"], ["PARENT", "STATE", "PENDING", "RUNNING", "AGE"]),
    ],
)
def test_names_and_columns_are_those_users_know(name, short, columns):
    crd = next(crd for crd in load_crds() if crd["metadata"]["name"] == name)
    version = crd["spec"]["versions"][0]
    assert crd["spec"]["names"]["shortNames"] == short
    assert [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")] == columns


def test_the_chart_keeps_its_crds_and_has_a_version():
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in load_crds()} == {"keep"}
    chart = yaml.safe_load((crd_directory().parent / "Chart.yaml").read_text())
    assert (chart["name"], chart["apiVersion"]) == ("muster-crds", "v2")


def test_a_file_that_is_no_crd_is_named(tmp_path):
    (tmp_path / "a.yaml").write_text("kind: Pod")
    with pytest.raises(ValueError, match=r"a\.yaml"):
        load_crds(tmp_path)


@pytest.mark.skipif(not SHARED, reason="the shared manifests are not here")
@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.stem)
def test_the_shared_manifests_are_accepted(store, path):
    for obj in yaml.safe_load_all(path.read_text()):
        if "kind" not in obj:
            continue
        if (obj["apiVersion"], obj["kind"]) not in PLURALS:
            # The only one: PriorityClass under Volcano's group, which no server knows.
            assert obj["kind"] == "PriorityClass"
            assert not [t for t in store.registry if (t.group, t.kind) == ("scheduling.volcano.sh", "PriorityClass")]
            continue
        create(store, obj)
