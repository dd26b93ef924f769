"""Pods and nodes as fake kubelets make them look, on a virtual clock."""

import pytest

from muster.simulator.pod_plan import Plan, PlanError
from tests.simulator.bench import Bench, assigned

N1, N2 = "gpu-node-01", "gpu-node-02"


async def test_a_node_is_tainted_not_ready_until_its_kubelet_reports():
    bench = Bench("2x8")
    assert bench.taints(N1) == {("not-ready", "NoSchedule")}
    assert bench.ready_status(N1) == "False"
    await bench.advance(1)
    assert bench.taints(N1) == set()
    assert bench.ready_status(N1) == "True"


async def test_a_node_tells_its_cards_mode_labels_and_rack():
    bench = await Bench.ready("4x8:2racks")
    node = bench.node(N1)
    assert (
        node["status"]["allocatable"]
        | {
            "cpu": "96",
            "pods": "110",
            "nvidia.com/gpu": "8",
            "volcano.sh/gpu-number": "8",
            "volcano.sh/gpu-memory": str(8 * 81920),
        }
        == node["status"]["allocatable"]
    )
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == N1
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert (labels["nvidia.com/gpu.memory"], labels["nvidia.com/gpu.count"]) == ("81920", "8")
    assert labels["topology.muster.dev/rack"] == "rack-a"
    assert bench.node("gpu-node-03")["metadata"]["labels"]["topology.muster.dev/rack"] == "rack-b"
    assert node["metadata"]["annotations"]["muster.dev/card-mode"] == "volcano"


async def test_stock_nodes_offer_whole_cards_only():
    bench = await Bench.ready("2x8:stock")
    allocatable = bench.node(N1)["status"]["allocatable"]
    assert allocatable["nvidia.com/gpu"] == "8"
    assert not [name for name in allocatable if name.startswith("volcano.sh/")]
    assert bench.node(N1)["metadata"]["annotations"]["muster.dev/card-mode"] == "stock"


async def test_leases_are_renewed_every_ten_seconds():
    bench = await Bench.ready()
    first = bench.get(N1, "leases.coordination.k8s.io", "kube-node-lease")["spec"]["renewTime"]
    await bench.advance(20)
    assert bench.get(N1, "leases.coordination.k8s.io", "kube-node-lease")["spec"]["renewTime"] > first
    await bench.advance(1000)
    assert bench.ready_status(N1) == "True"


async def test_a_bound_pod_starts_runs_and_succeeds():
    bench = await Bench.ready()
    bench.pod(
        "p",
        limits={"cpu": "4"},
        annotations={"simulator.muster.dev/start-seconds": "2", "simulator.muster.dev/run-seconds": "30"},
        node=N1,
    )
    await bench.advance(0.2)
    status = bench.status("p")
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert status["startTime"]
    await bench.advance(2)
    status = bench.status("p")
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.")
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    await bench.advance(30)
    status = bench.status("p")
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "False"


async def test_a_pod_without_a_plan_runs_until_it_is_deleted():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    await bench.advance(10_000)
    assert bench.phase("p") == "Running"


async def test_pods_that_run_together_have_different_addresses():
    bench = await Bench.ready()
    for number in range(40):
        bench.pod(f"p{number}", node=(N1, N2)[number % 2])
    await bench.advance(5)
    assert len({bench.status(f"p{number}")["podIP"] for number in range(40)}) == 40


@pytest.mark.parametrize(
    ("annotations", "policy", "after", "expected"),
    [
        pytest.param(
            {"run-seconds": "5", "exit-code": "3"},
            "Never",
            20,
            ("Failed", 0),
            id="an exit code that is not zero fails the pod",
        ),
        pytest.param({"fail-after": "5"}, "Never", 20, ("Failed", 0), id="fail-after fails the pod with exit code 1"),
        pytest.param({"run-seconds": "5"}, "OnFailure", 20, ("Succeeded", 0), id="OnFailure lets a success stand"),
        pytest.param(
            {"fail-after": "5"}, "OnFailure", 8, ("Running", 1), id="OnFailure restarts a failure after a back-off"
        ),
        pytest.param({"run-seconds": "5"}, "Always", 8, ("Running", 1), id="Always restarts a success too"),
        pytest.param(
            {"fail-after": "5", "fail-times": "1", "run-seconds": "7"},
            "OnFailure",
            60,
            ("Succeeded", 1),
            id="fail-times limits the failures",
        ),
        pytest.param(
            {"hang": "true"}, "Never", 10_000, ("Pending", 0), id="a hanging pod is admitted and never starts"
        ),
    ],
)
async def test_the_restart_policy_and_the_plan_decide_how_a_pod_ends(annotations, policy, after, expected):
    bench = await Bench.ready()
    bench.pod(
        "p", annotations={f"simulator.muster.dev/{k}": v for k, v in annotations.items()}, node=N1, restartPolicy=policy
    )
    await bench.advance(after)
    status = bench.status("p")
    assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == expected


async def test_back_offs_between_restarts_double():
    bench = await Bench.ready()
    bench.pod(
        "p",
        annotations={"simulator.muster.dev/fail-after": "1", "simulator.muster.dev/start-seconds": "1"},
        node=N1,
        restartPolicy="Always",
    )
    restarts = []
    for _ in range(5):
        await bench.advance(20)
        restarts.append(bench.status("p")["containerStatuses"][0]["restartCount"])
    # Runs end about 2, 13, 34, 75 s after the start: back-offs of 10, 20, 40 s.
    assert restarts == [2, 3, 3, 4, 4]


async def test_plan_rules_match_names_and_annotations_win():
    plan = Plan([("a-*", {"run_seconds": 5, "start_seconds": 0}), ("team/*", {"hang": True})])
    bench = await Bench.ready(plan=plan)
    bench.store.create("namespaces", {"metadata": {"name": "team"}})
    bench.pod("a-1", node=N1)
    bench.pod("a-2", annotations={"simulator.muster.dev/run-seconds": "500"}, node=N1)
    bench.pod("b", node=N1, namespace="team")
    await bench.advance(20)
    assert (bench.phase("a-1"), bench.phase("a-2")) == ("Succeeded", "Running")
    assert bench.get("b", namespace="team")["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        ("simulator.muster.dev/run-seconds", "soon", "run_seconds"),
        ("simulator.muster.dev/run-second", "5", "run-seconds"),
        ("simulator.muster.dev/run-seconds", "-1", "must not be negative"),
    ],
)
async def test_a_plan_that_cannot_be_understood_fails_the_pod_and_says_why(annotation, value, says):
    bench = await Bench.ready()
    bench.pod("p", annotations={annotation: value}, node=N1)
    await bench.advance(1)
    assert (bench.phase("p"), bench.status("p")["reason"]) == ("Failed", "SimulatorPlanInvalid")
    assert says in bench.status("p")["message"]


def test_a_rule_with_an_unknown_field_is_refused():
    with pytest.raises(PlanError, match="run_secs"):
        Plan([("*", {"run_secs": 1})])


async def test_a_deleted_pod_is_given_its_grace_and_then_removed():
    bench = await Bench.ready()
    bench.pod("p", annotations={"simulator.muster.dev/stop-seconds": "12"}, node=N1, terminationGracePeriodSeconds=60)
    await bench.advance(5)
    seen = []
    bench.store.subscribe("pods", lambda event, pod, _old: seen.append((event, pod["status"]["phase"])))
    bench.store.delete("pods", "default", "p")
    await bench.advance(11)
    assert bench.get("p")["metadata"]["deletionTimestamp"]
    await bench.advance(2)
    assert bench.get("p") is None
    assert seen == [("MODIFIED", "Running"), ("MODIFIED", "Failed"), ("MODIFIED", "Failed"), ("DELETED", "Failed")]


async def test_a_pod_that_ignores_the_signal_is_killed_at_the_end_of_its_grace():
    bench = await Bench.ready()
    bench.pod("p", annotations={"simulator.muster.dev/stop-seconds": "500"}, node=N1, terminationGracePeriodSeconds=20)
    await bench.advance(5)
    codes = []
    bench.store.subscribe(
        "pods",
        lambda _event, pod, _old: codes.extend(
            c["state"]["terminated"]["exitCode"]
            for c in pod["status"]["containerStatuses"]
            if "terminated" in c["state"]
        ),
    )
    bench.store.delete("pods", "default", "p")
    await bench.advance(19)
    assert bench.get("p") is not None
    await bench.advance(2)
    assert bench.get("p") is None
    assert set(codes) == {137}


async def test_a_second_delete_shortens_the_grace():
    bench = await Bench.ready()
    bench.pod("p", annotations={"simulator.muster.dev/stop-seconds": "500"}, node=N1, terminationGracePeriodSeconds=600)
    await bench.advance(5)
    bench.store.delete("pods", "default", "p")
    await bench.advance(5)
    bench.store.delete("pods", "default", "p", grace_period=10)
    await bench.advance(11)
    assert bench.get("p") is None


async def test_a_pod_deleted_before_it_starts_is_gone_at_once():
    bench = await Bench.ready()
    bench.pod("p", annotations={"simulator.muster.dev/start-seconds": "100"}, node=N1)
    await bench.advance(1)
    bench.store.delete("pods", "default", "p")
    await bench.advance(0.1)
    assert bench.get("p") is None


async def test_a_new_pod_of_the_same_name_starts_its_own_life():
    bench = await Bench.ready()
    bench.pod("p", limits={"nvidia.com/gpu": 8}, node=N1, bind=assigned("0,1,2,3,4,5,6,7"))
    await bench.advance(5)
    bench.store.delete("pods", "default", "p", grace_period=0)
    bench.pod("p", limits={"nvidia.com/gpu": 8}, node=N1, bind=assigned("0,1,2,3,4,5,6,7", 2))
    await bench.advance(5)
    assert bench.phase("p") == "Running"
    assert bench.kubelets.cards_of("default", "p") == tuple(range(8))


async def test_end_pod_ends_a_running_pod():
    bench = await Bench.ready()
    bench.pod("p", node=N1)
    await bench.advance(5)
    bench.kubelets.end_pod("default", "p", exit_code=9)
    assert bench.status("p")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
    with pytest.raises(LookupError, match="default/nobody"):
        bench.kubelets.end_pod("default", "nobody", exit_code=0)


async def test_thousands_of_pods_are_carried_by_timers_alone():
    bench = await Bench.ready("200x8", controllers=False)
    for number in range(2000):
        bench.pod(
            f"p{number}", annotations={"simulator.muster.dev/run-seconds": "5"}, node=f"gpu-node-{number % 200 + 1:03d}"
        )
    await bench.advance(9)
    assert {pod["status"]["phase"] for pod in bench.store.objects("pods")} == {"Succeeded"}


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_same_seed_gives_the_same_history(seed):
    async def history():
        bench = await Bench.ready(plan=Plan(seed=seed))
        told = []
        bench.store.subscribe(
            "pods", lambda event, pod, _old: told.append((bench.clock.now(), event, pod["metadata"]["name"]))
        )
        for number in range(20):
            bench.pod(f"p{number}", annotations={"simulator.muster.dev/run-seconds": "3"}, node=(N1, N2)[number % 2])
        await bench.advance(20)
        return told

    first = await history()
    assert len(first) > 80
    assert first == await history()
