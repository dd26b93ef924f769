"""Garbage collection, namespaces, service accounts, silent nodes and orphaned pods, on a virtual clock."""

import pytest

from tests.simulator.bench import Bench

N1, N2 = "gpu-node-01", "gpu-node-02"


def owner_reference(owner, *, block=True):
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }


def config(bench, name, *owners, block=True, namespace="default"):
    references = [{**owner_reference(owner, block=block), "controller": owner is owners[0]} for owner in owners]
    return bench.store.create(
        "configmaps", {"metadata": {"name": name, "ownerReferences": references}}, namespace=namespace
    )


# -- garbage collection ------------------------------------------------------------------------------------------------


async def test_dependents_go_after_their_owner_in_the_background():
    bench = await Bench.ready()
    top = config(bench, "top")
    middle = config(bench, "middle", top)
    config(bench, "bottom", middle)
    bench.store.delete("configmaps", "default", "top")
    assert bench.get("top", "configmaps") is None
    assert bench.get("middle", "configmaps") is not None
    await bench.advance(1)
    assert bench.store.list("configmaps", "default") == []


async def test_foreground_deletion_waits_for_the_dependents():
    bench = await Bench.ready()
    top = config(bench, "top")
    bench.pod("p", owners=[owner_reference(top)], node=N1, annotations={"simulator.muster.dev/stop-seconds": "20"})
    config(bench, "free", top, block=False)
    await bench.advance(5)
    bench.store.delete("configmaps", "default", "top", propagation="Foreground")
    await bench.advance(5)
    assert bench.get("top", "configmaps")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in bench.get("p")["metadata"]
    await bench.advance(20)
    assert bench.get("p") is None
    assert bench.store.list("configmaps", "default") == []


async def test_foreground_deletion_goes_down_level_by_level():
    bench = await Bench.ready()
    top = config(bench, "top")
    middle = config(bench, "middle", top)
    config(bench, "bottom", middle)
    gone = []
    bench.store.subscribe(
        "configmaps", lambda event, obj, _old: gone.append(obj["metadata"]["name"]) if event == "DELETED" else None
    )
    bench.store.delete("configmaps", "default", "top", propagation="Foreground")
    await bench.advance(2)
    assert gone == ["bottom", "middle", "top"]


async def test_orphan_deletion_leaves_the_dependents_without_the_reference():
    bench = await Bench.ready()
    top = config(bench, "top")
    config(bench, "child", top)
    bench.store.delete("configmaps", "default", "top", propagation="Orphan")
    await bench.advance(2)
    assert bench.get("top", "configmaps") is None
    assert not bench.get("child", "configmaps")["metadata"].get("ownerReferences")


async def test_a_dependent_with_another_living_owner_stays():
    bench = await Bench.ready()
    one, two = config(bench, "one"), config(bench, "two")
    config(bench, "child", one, two)
    bench.store.delete("configmaps", "default", "one")
    await bench.advance(2)
    assert [o["name"] for o in bench.get("child", "configmaps")["metadata"]["ownerReferences"]] == ["two"]


async def test_a_dependent_whose_owner_never_existed_is_collected():
    bench = await Bench.ready()
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    config(bench, "child", ghost)
    await bench.advance(1)
    assert bench.get("child", "configmaps") is None


async def test_an_owner_of_the_same_name_and_another_uid_is_another_owner():
    bench = await Bench.ready()
    top = config(bench, "top")
    config(bench, "child", top)
    bench.store.delete("configmaps", "default", "top")
    config(bench, "top")
    await bench.advance(1)
    assert [c["metadata"]["name"] for c in bench.store.list("configmaps", "default")] == ["top"]


async def test_an_owner_of_an_unknown_kind_is_waited_for():
    bench = await Bench.ready()
    alien = {"apiVersion": "example.com/v1", "kind": "Alien", "metadata": {"name": "a", "uid": "u"}}
    config(bench, "child", alien)
    await bench.advance(100)
    assert bench.get("child", "configmaps") is not None


async def test_custom_resources_own_and_are_owned():
    bench = await Bench.ready()
    task = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    job = bench.store.create("jobs.batch.volcano.sh", {"metadata": {"name": "j"}, "spec": {"tasks": [task]}})
    group = bench.store.create(
        "podgroups.scheduling.volcano.sh",
        {"metadata": {"name": "g", "ownerReferences": [owner_reference(job)]}, "spec": {}},
    )
    bench.pod("p", owners=[owner_reference(group)])
    bench.store.delete("jobs.batch.volcano.sh", "default", "j")
    await bench.advance(2)
    assert bench.get("g", "podgroups.scheduling.volcano.sh") is None
    assert bench.get("p") is None


async def test_resources_of_a_crd_that_comes_later_are_collected_too():
    bench = await Bench.ready()
    crd = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    bench.store.create("customresourcedefinitions.apiextensions.k8s.io", crd)
    thing = bench.store.create("things.example.com", {"metadata": {"name": "t"}})
    config(bench, "child", thing)
    bench.store.delete("things.example.com", "default", "t")
    await bench.advance(1)
    assert bench.get("child", "configmaps") is None


# -- namespaces and service accounts -----------------------------------------------------------------------------------


async def test_every_namespace_has_its_default_service_account():
    bench = await Bench.ready()
    bench.store.create("namespaces", {"metadata": {"name": "team"}})
    for namespace in ("default", "kube-system", "team"):
        assert bench.get("default", "serviceaccounts", namespace) is not None
    bench.store.delete("serviceaccounts", "team", "default")
    assert bench.get("default", "serviceaccounts", "team") is not None


async def test_a_deleted_namespace_is_emptied_and_goes_when_its_pods_are_gone():
    bench = await Bench.ready()
    bench.store.create("namespaces", {"metadata": {"name": "team"}})
    config(bench, "c", namespace="team")
    bench.store.create("podgroups.scheduling.volcano.sh", {"metadata": {"name": "g"}, "spec": {}}, namespace="team")
    bench.pod("p", namespace="team", node=N1, annotations={"simulator.muster.dev/stop-seconds": "15"})
    await bench.advance(5)
    bench.store.delete("namespaces", None, "team")
    await bench.advance(5)
    assert bench.get("team", "namespaces", None)["status"]["phase"] == "Terminating"
    assert bench.get("c", "configmaps", "team") is None
    await bench.advance(15)
    assert bench.get("team", "namespaces", None) is None
    assert bench.get("p", namespace="team") is None
    assert bench.get("default", "serviceaccounts", "team") is None


# -- nodes -------------------------------------------------------------------------------------------------------------


async def test_a_silent_node_is_unreachable_after_forty_seconds_and_emptied_after_five_minutes():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    bench.pod("q", node=N2)
    await bench.advance(5)
    bench.kubelets.stop_node(N1)
    await bench.advance(28)
    assert bench.ready_status(N1) == "True"
    await bench.advance(15)
    assert bench.ready_status(N1) == "Unknown"
    assert bench.taints(N1) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    ready = next(c for c in bench.status("p")["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NodeNotReady")
    assert bench.phase("p") == "Running"
    await bench.advance(290)
    assert "deletionTimestamp" not in bench.get("p")["metadata"]
    await bench.advance(15)
    pod = bench.get("p")
    # Nobody confirms the end: the object stays, terminating, until the kubelet is back.
    assert "deletionTimestamp" in pod["metadata"]
    assert (
        next(c["reason"] for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget")
        == "DeletionByTaintManager"
    )
    await bench.advance(1000)
    assert bench.get("p") is not None
    assert bench.phase("q") == "Running"
    bench.kubelets.start_node(N1)
    await bench.advance(5)
    assert bench.get("p") is None
    assert (bench.ready_status(N1), bench.taints(N1)) == ("True", set())


async def test_a_node_that_comes_back_in_time_keeps_its_pods():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    await bench.advance(5)
    bench.kubelets.stop_node(N1)
    await bench.advance(200)
    assert bench.ready_status(N1) == "Unknown"
    bench.kubelets.start_node(N1)
    await bench.advance(1000)
    assert "deletionTimestamp" not in bench.get("p")["metadata"]
    assert bench.taints(N1) == set()


async def test_a_pod_that_ended_while_its_kubelet_was_away_is_reported_when_it_is_back():
    bench = await Bench.ready()
    bench.pod("p", node=N1, annotations={"simulator.muster.dev/run-seconds": "20"})
    await bench.advance(5)
    bench.kubelets.stop_node(N1)
    await bench.advance(60)
    assert bench.phase("p") == "Running"
    bench.kubelets.start_node(N1)
    assert bench.phase("p") == "Succeeded"


async def test_a_pod_bound_while_the_kubelet_is_away_starts_when_it_is_back():
    bench = await Bench.ready()
    bench.kubelets.stop_node(N1)
    bench.pod("p", node=N1)
    await bench.advance(20)
    assert bench.phase("p") == "Pending"
    bench.kubelets.start_node(N1)
    await bench.advance(5)
    assert bench.phase("p") == "Running"


@pytest.mark.parametrize(
    ("tolerations", "stays"),
    [
        pytest.param(
            [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}],
            10_000,
            id="for ever",
        ),
        pytest.param(
            [
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 10,
                }
            ],
            10,
            id="ten seconds",
        ),
    ],
)
async def test_a_pods_own_toleration_says_how_long_it_stays(tolerations, stays):
    bench = await Bench.ready()
    bench.pod("p", node=N1, tolerations=tolerations)
    await bench.advance(5)
    bench.kubelets.stop_node(N1)
    await bench.advance(42)
    assert bench.ready_status(N1) == "Unknown"
    await bench.advance(600)
    assert ("deletionTimestamp" in bench.get("p")["metadata"]) == (stays < 600)


async def test_a_no_execute_taint_by_hand_evicts_at_once():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    await bench.advance(5)
    bench.store.patch("nodes", None, N1, {"spec": {"taints": [{"key": "example.com/drain", "effect": "NoExecute"}]}})
    await bench.advance(2)
    assert bench.get("p") is None
    assert bench.taints(N1) == {("example.com/drain", "NoExecute")}


async def test_a_cordon_is_shown_as_a_taint_and_taken_back():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    bench.store.patch("nodes", None, N1, {"spec": {"unschedulable": True}})
    await bench.advance(3)
    assert bench.taints(N1) == {("unschedulable", "NoSchedule")}
    assert bench.phase("p") == "Running"
    bench.store.patch("nodes", None, N1, {"spec": {"unschedulable": None}})
    await bench.advance(1)
    assert bench.taints(N1) == set()


async def test_a_node_nobody_speaks_for_becomes_unknown():
    bench = await Bench.ready()
    bench.store.create("nodes", {"metadata": {"name": "by-hand"}})
    await bench.advance(60)
    assert bench.ready_status("by-hand") == "Unknown"
    assert ("unreachable", "NoSchedule") in bench.taints("by-hand")


async def test_pods_of_a_removed_node_are_failed_and_removed():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    await bench.advance(5)
    phases = []
    bench.store.subscribe("pods", lambda event, pod, _old: phases.append((event, pod["status"]["phase"])))
    bench.kubelets.remove_node(N1)
    assert bench.get(N1, "nodes", None) is None
    await bench.advance(30)
    assert bench.phase("p") == "Running"
    await bench.advance(15)
    assert bench.get("p") is None
    assert ("MODIFIED", "Failed") in phases
    assert bench.get(N1, "leases.coordination.k8s.io", "kube-node-lease") is None


async def test_a_pod_bound_to_a_node_that_does_not_exist_is_removed():
    bench = await Bench.ready()
    bench.pod("p", node="nowhere")
    await bench.advance(45)
    assert bench.get("p") is None


async def test_a_machine_can_be_added_while_the_cluster_runs():
    bench = await Bench.ready()
    spec = bench.kubelets._machine(N1).spec
    bench.kubelets.add_node(type(spec)(name="late", cpu=spec.cpu, memory=spec.memory))
    await bench.advance(1)
    assert (bench.ready_status("late"), bench.taints("late")) == ("True", set())
    with pytest.raises(ValueError, match="late"):
        bench.kubelets.add_node(type(spec)(name="late", cpu=spec.cpu, memory=spec.memory))


async def test_nothing_changes_any_more_once_all_is_settled():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    await bench.advance(60)
    written = []
    for resource in ("nodes", "pods", "namespaces", "jobs.batch", "serviceaccounts", "events"):
        bench.store.subscribe(resource, lambda event, obj, _old: written.append((event, obj["kind"])))
    await bench.advance(600)
    assert written == []
