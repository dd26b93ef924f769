import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.bus.messages import ShortJob, Submit
from muster.decide.lifecycle.actions import BATCH_JOBS, VCJOBS
from muster.decide.lifecycle.jobspec import check_spec, read_spec
from muster.decide.lifecycle.submission import Cluster, given_name, judge, object_name
from muster.model.policy import Policy, QueueRules, Tenant
from muster.model.workloads import Namespace, Queue

POLICY = Policy(tenants={"t": Tenant(default_namespace="ns", service_accounts=("default", "trainer"))})
CLUSTER = Cluster(
    policy=POLICY,
    queues={
        "default": Queue(name="default"),
        "parent": Queue(name="parent"),
        "child": Queue(name="child", parent="parent"),
    },
    priority_classes=frozenset({"high"}),
    namespaces={"ns": Namespace(name="ns"), "going": Namespace(name="going", terminating=True)},
    largest_card_mib=81920,
)


def short(**values):
    return Submit(id="s", short=ShortJob(**{"image": "x", **values}))


def manifest(spec=None, *, pod=None, kind="batch/v1", metadata=None, **container):
    pod_spec = {"schedulerName": "muster", "containers": [{"name": "c", "image": "x", **container}], **(pod or {})}
    template = {"spec": pod_spec}
    body = (
        {"template": template}
        if kind == "batch/v1"
        else {"tasks": [{"name": "t", "replicas": 1, "template": template}]}
    )
    document = {
        "apiVersion": kind,
        "kind": "Job",
        "metadata": {"name": "m", **(metadata or {})},
        "spec": {**body, **(spec or {})},
    }
    return Submit(id="s", manifest=document)


def fields(submit):
    return {problem.field for problem in judge(submit, tenant="t", cluster=CLUSTER).problems}


def test_the_short_form_becomes_a_gang_of_one_task():
    judged = judge(
        short(
            gpus=8,
            replicas=4,
            command=("python", "t.py"),
            topology="rack",
            priority_class="high",
            max_retry=2,
            expected_duration=90.0,
        ),
        tenant="t",
        cluster=CLUSTER,
    )
    assert judged.problems == ()
    assert (judged.kind, judged.namespace) == (VCJOBS, "ns")
    spec = read_spec(judged.document["spec"])
    assert (spec.minimum, spec.replicas, spec.attempts) == (4, 4, 3)
    annotations = judged.document["metadata"]["annotations"]
    assert annotations["muster.dev/topology-required"] == "rack"
    assert annotations["muster.dev/expected-duration"] == "90"
    assert check_spec(spec, job=judged.name, policy=POLICY).problems == ()


def test_a_batch_job_passes_as_it_is_with_a_name_of_its_own():
    judged = judge(manifest(), tenant="t", cluster=CLUSTER)
    assert (judged.problems, judged.kind) == ((), BATCH_JOBS)
    assert judged.name == object_name("m", tenant="t", submission_id="s")


def test_a_literal_secret_is_warned_about():
    judged = judge(manifest(env=[{"name": "API_TOKEN", "value": "x"}]), tenant="t", cluster=CLUSTER)
    assert "API_TOKEN looks like a secret" in judged.warnings[0]


POD = "manifest.spec.template.spec"
REFUSED = {
    "the host's network": (manifest(pod={"hostNetwork": True}), f"{POD}.hostNetwork"),
    "the host's processes": (manifest(pod={"hostPID": True}), f"{POD}.hostPID"),
    "the host's memory": (manifest(pod={"hostIPC": True}), f"{POD}.hostIPC"),
    "a host port": (manifest(ports=[{"containerPort": 1, "hostPort": 1}]), f"{POD}.containers[0].ports[0].hostPort"),
    "a capability": (
        manifest(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        f"{POD}.containers[0].securityContext.capabilities.add",
    ),
    "a foreign service account": (manifest(pod={"serviceAccountName": "admin"}), f"{POD}.serviceAccountName"),
    "a node of its choice": (manifest(pod={"nodeName": "n"}), f"{POD}.nodeName"),
    "another scheduler": (manifest(pod={"schedulerName": "default-scheduler"}), f"{POD}.schedulerName"),
    "somebody's gang": (
        manifest(metadata={"annotations": {"scheduling.k8s.io/group-name": "x"}}),
        'manifest.metadata.annotations["scheduling.k8s.io/group-name"]',
    ),
    "somebody's cards": (
        manifest(metadata={"annotations": {"muster.dev/cards": "[]"}}),
        'manifest.metadata.annotations["muster.dev/cards"]',
    ),
    "an owner": (manifest(metadata={"ownerReferences": [{"uid": "x"}]}), "manifest.metadata.ownerReferences"),
    "an unconfined seccomp profile": (
        manifest(pod={"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        f"{POD}.securityContext.seccompProfile.type",
    ),
    "a minimum above the parallelism": (
        manifest({"parallelism": 2}, metadata={"annotations": {"volcano.sh/job-min-available": "3"}}),
        'manifest.metadata.annotations["volcano.sh/job-min-available"]',
    ),
    "a queue with queues below it": (short(queue="parent"), "short.queue"),
    "a namespace that is going": (Submit(id="s", namespace="going", short=ShortJob(image="x")), "namespace"),
    "a plugin that is not there": (
        manifest({"plugins": {"mpi": []}}, kind="batch.volcano.sh/v1alpha1"),
        "manifest.spec.plugins.mpi",
    ),
    "a spec of another form": (
        manifest({"minAvailable": "x"}, kind="batch.volcano.sh/v1alpha1"),
        "manifest.spec.minAvailable",
    ),
    "half a card": (
        manifest(resources={"limits": {"nvidia.com/gpu": "0.5"}}),
        f'{POD}.containers[0].resources.limits["nvidia.com/gpu"]',
    ),
    "a misspelt field of a Volcano Job": (
        manifest({"minAvailabe": 1}, kind="batch.volcano.sh/v1alpha1"),
        "manifest.spec.minAvailabe",
    ),
    "a misspelt field beside one of another form": (
        manifest({"minAvailabe": 1, "parallelism": "x"}),
        "manifest.spec.minAvailabe",
    ),
    "a misspelt field of a container": (manifest(commnd=["x"]), f"{POD}.containers[0].commnd"),
    "a misspelt resource": (
        manifest(resources={"limits": {"nvidia.com/gpus": 1}}),
        f'{POD}.containers[0].resources.limits["nvidia.com/gpus"]',
    ),
    "gigabytes as MiB in the short form": (short(gpu_memory_mib=12), "short.gpu_memory_mib"),
    "a suffix that Kubernetes has not": (short(memory="64GB"), "short.memory"),
    "a name that is none": (manifest(metadata={"name": "Not_A_Name"}), "name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_tenant_may_not_ask(name):
    submit, field = REFUSED[name]
    assert field in fields(submit)


@given(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=80),
    st.text(max_size=5),
    st.text(min_size=1, max_size=5),
)
def test_names_are_fixed_short_and_different_for_different_submissions(base, tenant, submission_id):
    name = object_name(base, tenant=tenant, submission_id=submission_id)
    assert name == object_name(base, tenant=tenant, submission_id=submission_id)
    assert len(name) <= 47
    assert name != object_name(base, tenant=tenant + "x", submission_id=submission_id)
    assert name != object_name(base, tenant=tenant, submission_id=submission_id + "x")


WHOLE = {
    "metadata": {"name": "m", "namespace": "ns", "annotations": {"a": "b"}, "labels": {"a": "b"}},
    "spec": {
        "queue": "default",
        "minAvailable": 1,
        "parallelism": 1,
        "plugins": {"env": []},
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "volumes": [{"mountPath": "/a"}],
        "template": {},
        "tasks": [{"name": "t", "replicas": 1, "template": {}}],
    },
}
TEMPLATE = {
    "metadata": {"annotations": {"a": "b"}, "labels": {"a": "b"}},
    "spec": {
        "schedulerName": "muster",
        "priorityClassName": "high",
        "serviceAccountName": "default",
        "securityContext": {
            "seccompProfile": {"type": "x"},
            "seLinuxOptions": {"type": ""},
            "sysctls": [{"name": "x"}],
        },
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
        "containers": [
            {
                "name": "c",
                "image": "x",
                "env": [{"name": "A", "value": "b"}],
                "ports": [{"hostPort": 0}],
                "resources": {"limits": {"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 4096}, "requests": {"cpu": 1}},
                "securityContext": {"capabilities": {"add": []}, "procMount": "Default"},
            }
        ],
    },
}
WHOLE["spec"]["template"] = TEMPLATE
WHOLE["spec"]["tasks"][0]["template"] = TEMPLATE


def paths(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


PATHS = sorted(paths(WHOLE), key=str)


@pytest.mark.parametrize("api_version", ["batch/v1", "batch.volcano.sh/v1alpha1"])
@pytest.mark.parametrize("new", [None, "text", 7, 0.5, True, [], ["a"], [1], {"a": {}}, {"a": "b"}], ids=str)
def test_no_manifest_with_one_wrong_value_can_crash_the_judge(api_version, new):
    for path in PATHS:
        document = replaced(WHOLE, path, new)
        if isinstance(document, dict):
            document = {"apiVersion": api_version, "kind": "Job", **document}
            judge(Submit(id="s", manifest=document), tenant="t", cluster=CLUSTER)


@pytest.mark.parametrize(
    ("rules", "submit", "told"),
    [
        pytest.param(QueueRules(namespaces=("ns",)), short(), "", id="its namespace is named"),
        pytest.param(
            QueueRules(namespaces=("other",)),
            short(),
            "queue default takes jobs of namespace other only, not of ns",
            id="another namespace",
        ),
        pytest.param(
            QueueRules(priority_classes=("low",)),
            short(priority_class="high"),
            "and this one has priority class high",
            id="another priority class",
        ),
        pytest.param(
            QueueRules(priority_classes=("low",)), short(), "", id="without a class it gets the default one later"
        ),
    ],
)
def test_what_the_rules_of_a_queue_would_hold_is_refused_at_once(rules, submit, told):
    policy = msgspec.structs.replace(POLICY, queues={"default": rules})
    judged = judge(submit, tenant="t", cluster=msgspec.structs.replace(CLUSTER, policy=policy))
    messages = [problem.message for problem in judged.problems]
    assert len(messages) == bool(told)
    assert all(told in message for message in messages)


@pytest.mark.parametrize(
    ("name", "submission", "given"),
    [
        pytest.param(object_name("llm-7", tenant="t", submission_id="s"), "s", "llm-7", id="made from a submission"),
        pytest.param("llm-0123456789", "", "llm-0123456789", id="a name that only looks so"),
        pytest.param("llm-evaluation", "s", "llm-evaluation", id="a name without a hash"),
    ],
)
def test_the_name_that_was_asked_for_is_known_again(name, submission, given):
    assert given_name(name, submission=submission) == given
