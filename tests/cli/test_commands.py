"""The command line: what it refuses before anything is sent, and what it tells."""

import json
from pathlib import Path

import pytest

from muster.bus.queries import ExplainReply, Fact
from muster.cli import COMMANDS, build_parser, main
from muster.cli.explain import text
from muster.cli.submit import describe
from muster.cli.words import cards, span

MANIFESTS = Path(__file__).parent / "manifests"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert "example" in told
    assert "--json" in told


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["submit"], "what shall run?", id="neither file nor image"),
        pytest.param(["submit", "none.yaml"], "No such file", id="a file that is not there"),
        pytest.param(
            ["submit", "--image", "x", "--env", "A"], "expected NAME=VALUE", id="an environment without value"
        ),
        pytest.param(["get"], "no Muster found", id="nobody to talk to"),
        pytest.param(["lint", "none.yaml"], "no such file", id="lint of a file that is not there"),
        pytest.param(["up", "--kubeconfig", "none"], "no such file", id="up on a kubeconfig that is not there"),
        pytest.param(["service", "watcher"], "which cluster?", id="a service without a cluster"),
    ],
)
def test_bad_input_ends_with_2_and_a_sentence(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUSTER_NATS_URL", raising=False)
    monkeypatch.delenv("MUSTER_KUBECONFIG", raising=False)
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_an_unreachable_server_is_said_with_its_address(capsys, monkeypatch):
    monkeypatch.setattr("muster.bus.client.CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(
        "muster.client.connect_bus", impatient(__import__("muster.bus.client", fromlist=["connect"]).connect)
    )
    assert main(["get", "--nats", "nats://127.0.0.1:1"]) == 1
    assert "nats://127.0.0.1:1" in capsys.readouterr().err


def impatient(connect):
    async def connected(url, **options):
        return await connect(url, **{**options, "seconds": 0.3})

    return connected


LINTED = [
    pytest.param(
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PriorityClass", "metadata": {"name": "x"}, "value": 1},
        "PriorityClass lives in scheduling.k8s.io/v1",
        id="a priority class under Volcano's group",
    ),
    pytest.param(
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Que", "metadata": {"name": "x"}},
        "no kind Que",
        id="a kind that does not exist",
    ),
    pytest.param(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": {"volcano.sh/job-min-avaliable": "4"}}},
        "did you mean volcano.sh/job-min-available",
        id="a misspelt annotation",
    ),
    pytest.param(
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "spec": {"capabilty": {"gpu": 1}}},
        "did you mean capability",
        id="a misspelt field of a queue",
    ),
    pytest.param(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "spec": {"capability": {"gpu": 1}, "deserved": {"gpu": 2}},
        },
        "capability 1 is below deserved 2",
        id="capability below deserved",
    ),
    pytest.param(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"volcano.sh/gpu-memory": 12}}}]},
        },
        "Did you mean 12288",
        id="a unit trap in a pod",
    ),
    pytest.param(["no", "object"], "no Kubernetes object", id="no object at all"),
    pytest.param({"apiVersion": "v1", "kind": "Pod", "spec": 5}, "must be a mapping", id="a spec that is none"),
    pytest.param(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": ["a"]}}, "this is a list", id="labels that are none"
    ),
    pytest.param(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": {"spec": {"container": []}}}},
        "did you mean containers?",
        id="a misspelt field of a template",
    ),
    pytest.param(
        {"apiVersion": "batch/v1", "kind": "Job", "spec": {"paralelism": 2, "template": {}}},
        "did you mean parallelism?",
        id="a misspelt field of a batch job",
    ),
    pytest.param(
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "spec": {"guarantee": {"cpu": 1}}},
        "there is no field cpu here",
        id="an amount one level too high",
    ),
]


@pytest.mark.parametrize(("document", "told"), LINTED)
def test_lint_tells_what_is_likely_meant(document, told, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    assert main(["lint", str(path)]) == 1
    assert told in capsys.readouterr().out
    assert main(["lint", str(path), "--json"]) == 1
    assert told in json.loads(capsys.readouterr().out)[0]["message"]


MISSPELT = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a}
spec:
  minAvailabe: 2
  tasks:
  - name: w
    replica: 2
    template:
      spec:
        containers:
        - name: c
          commnd: [x]
          resources: {limits: {nvidia.com/gpus: 8, mem: 1Gi, volcano.sh/gpu-memroy: 4096, amd.com/gpu: 1}}
"""


def test_lint_tells_every_misspelt_field_and_resource_of_a_volcano_job(tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(MISSPELT)
    assert main(["lint", str(tmp_path), "--json"]) == 1
    container = "spec.tasks[0].template.spec.containers[0]"
    told = [
        (row["field"], row["message"].rpartition("did you mean ")[2]) for row in json.loads(capsys.readouterr().out)
    ]
    assert told == [
        ("spec.minAvailabe", "minAvailable?"),
        ("spec.tasks[0].replica", "replicas?"),
        (f"{container}.commnd", "command?"),
        (f'{container}.resources.limits["nvidia.com/gpus"]', "nvidia.com/gpu?"),
        (f'{container}.resources.limits["mem"]', "memory?"),
        (f'{container}.resources.limits["volcano.sh/gpu-memroy"]', "volcano.sh/gpu-memory?"),
        (f"{container}.image", "needs an image such as registry.example.com/llm:3, without spaces"),
    ]
    assert main(["lint", str(tmp_path)]) == 1
    assert "1 document, 7 problems" in capsys.readouterr().err


def test_lint_of_good_files_says_so(tmp_path, capsys):
    path = tmp_path / "q.yaml"
    path.write_text("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {weight: 1}\n")
    assert main(["lint", str(tmp_path)]) == 0
    assert "1 document, 0 problems" in capsys.readouterr().err


def test_lint_of_broken_yaml_names_the_line(tmp_path, capsys):
    path = tmp_path / "b.yaml"
    path.write_text("a: 1\nb: [\n")
    assert main(["lint", str(path)]) == 2
    assert "b.yaml:" in capsys.readouterr().err


def test_words():
    assert [cards(None), cards(8_000_000), cards(500_000), cards(0)] == ["–", "8", "0.5", "0"]
    assert [span(5), span(120), span(7200), span(3 * 86_400)] == ["5 s", "2 min", "2 h", "3 d"]
    assert describe({"gpus": 8, "replicas": 4, "topology": "rack", "queue": "q"}) == "4 × 8 cards, one rack, queue q"
    assert describe({"gpu_memory_mib": 5120}) == "1 × a share of a card (5120 MiB)"


def test_an_explanation_names_code_position_and_facts():
    reply = ExplainReply(
        job="ns/a",
        state="Waiting",
        queue="q",
        position=2,
        message="3 of 4 nodes",
        facts=(Fact(label="asks", text="4 pods"),),
    )
    assert text(reply).splitlines() == ["ns/a waits (2nd in q): 3 of 4 nodes", "  asks  4 pods"]
