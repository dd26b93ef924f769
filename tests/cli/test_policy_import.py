"""A volcano-scheduler.conf becomes a policy; every line of it is accounted for."""

import json

import pytest
import yaml

from muster.cli import main
from muster.decide.volcano_plugins import ACTIONS, ARGUMENTS, PLUGINS, Outcome
from muster.model.policy import Policy
from muster.runtime.policy_file import load_policy
from muster.runtime.volcano_file import import_text
from muster.runtime.yaml_lines import YamlError

NINE = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: preempt
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
    arguments: {binpack.weight: 1, binpack.cpu: 10, binpack.memory: 10, binpack.gpu: 1}
configurations:
- name: nodeorder
  arguments: {nodelocality.weight: 2}
"""
TWELVE = """\
actions: "enqueue, allocate, backfill, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
configs:
- name: nodeorder
  arguments: {nodelocality.weight: 2}
"""
SHORT = 'actions: "allocate"\ntiers:\n- plugins:\n'


def accounts(text, outcome=None):
    return [
        (one.line, one.field, one.message)
        for one in import_text(text).accounts
        if outcome is None or one.outcome is outcome
    ]


def told(text, part):
    found = [one for one in import_text(text).accounts if part in f"{one.field} {one.value} {one.message}"]
    assert found, f"{part} in {import_text(text).accounts}"
    return found[0]


def test_weights_of_binpack_are_taken_over_and_what_is_not_understood_is_named_with_its_line():
    imported = import_text(NINE)
    assert imported.changes == {
        "actions": {"preempt": "observe", "reclaim": "observe"},
        "packing": {"weight": 1, "cpu": 10, "memory": 10, "gpu": 1},
    }
    unknown = accounts(NINE, Outcome.UNKNOWN)
    assert [line for line, _, _ in unknown] == [6, 16, 17]
    assert "preempt is an action: list it under actions" in unknown[0][2]
    assert "no argument nodelocality.weight" in unknown[2][2]
    gpu = told(NINE, "binpack.gpu")
    assert (gpu.line, gpu.outcome) == (14, Outcome.TAKEN)
    assert "its own spelling is binpack.resources" in gpu.message


def test_the_other_spelling_switches_preempt_and_reclaim_on_and_leaves_the_rest_as_it_is():
    imported = import_text(TWELVE)
    assert imported.changes == {"actions": {"preempt": "act", "reclaim": "act"}}
    assert [(line, field) for line, field, _ in accounts(TWELVE, Outcome.UNKNOWN)] == [
        (6, "configs[0].name"),
        (7, "configs[0].arguments.nodelocality.weight"),
    ]


def test_every_line_that_says_something_is_accounted_for():
    for text in (NINE, TWELVE):
        lines = {line for line, _, _ in accounts(text)}
        saying = {
            number
            for number, line in enumerate(text.splitlines(), start=1)
            if "name:" in line or "arguments:" in line or line.startswith("actions")
        }
        assert saying <= lines


@pytest.mark.parametrize(
    ("plugin", "part", "outcome", "message"),
    [
        pytest.param("{name: binpack, arguments: {binpack.resources: 'nvidia.com/gpu, example.com/foo', binpack.resources.nvidia.com/gpu: 7, binpack.resources.example.com/foo: 3}}", "resources.nvidia.com/gpu", Outcome.TAKEN, "packing.gpu: 7", id="cards by Volcano's own spelling"),
        pytest.param("{name: binpack, arguments: {binpack.resources: 'example.com/foo', binpack.resources.example.com/foo: 3}}", "example.com/foo", Outcome.DIFFERS, "has no weight here", id="a resource that has no weight"),
        pytest.param("{name: binpack, arguments: {binpack.resources.nvidia.com/gpu: 3}}", "nvidia.com/gpu", Outcome.UNKNOWN, "is not listed under binpack.resources", id="a weight of what is not listed"),
        pytest.param("{name: binpack}", "packs by cards only", Outcome.DIFFERS, "here they weigh 10", id="no cards named"),
        pytest.param("{name: binpack, arguments: {binpack.cpu: -3}}", "binpack.cpu", Outcome.TAKEN, "packing.cpu: 1; Volcano reads -3 as 1", id="a negative weight"),
        pytest.param("{name: binpack, arguments: {binpack.cpu: much}}", "binpack.cpu", Outcome.UNKNOWN, "a whole number belongs here", id="no number"),
        pytest.param("{name: binpack, arguments: {binpack.cpus: 3}}", "binpack.cpus", Outcome.UNKNOWN, "did you mean binpack.cpu?", id="a misspelt argument"),
        pytest.param("{name: sla, arguments: {sla-waiting-time: 1h30m}}", "sla-waiting-time", Outcome.TAKEN, "waiting.max_wait: 5400", id="the waiting time of sla"),
        pytest.param("{name: sla, arguments: {sla-waiting-time: soon}}", "sla-waiting-time", Outcome.UNKNOWN, "is no amount of time", id="no waiting time"),
        pytest.param("{name: gang, enablePreemptable: false}", "enablePreemptable", Outcome.SAME, "it then leaves whole", id="the switch that Volcano's default has"),
        pytest.param("{name: priority, enableJobOrder: false}", "enableJobOrder", Outcome.DIFFERS, "cannot be switched off", id="a switch that is always on here"),
        pytest.param("{name: priority, enableJobOrdr: false}", "enableJobOrdr", Outcome.UNKNOWN, "did you mean enableJobOrder?", id="a misspelt switch"),
        pytest.param("{name: predicates, arguments: {predicate.VolumeBindingEnable: false}}", "VolumeBinding", Outcome.DIFFERS, "cannot be switched off", id="a predicate that is switched off"),
        pytest.param("{name: deviceshare, arguments: {deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: spread}}", "SchedulePolicy", Outcome.DIFFERS, "fullest card", id="shares spread over cards"),
        pytest.param("{name: usage, arguments: {thresholds: {cpu: 80, mem: 80}}}", "thresholds", Outcome.DIFFERS, "really use", id="thresholds of real use"),
        pytest.param("{name: tdm, arguments: {tdm.revocable-zone.rz1: '10:00-21:00'}}", "revocable-zone", Outcome.DIFFERS, "time of day", id="an argument with a name in it"),
        pytest.param("{name: nodeorder, arguments: {leastrequested.weight: 1}}", "leastrequested", Outcome.DIFFERS, "not spread over", id="spreading"),
        pytest.param("{name: network-topology-aware, arguments: {weight: 10}}", "arguments.weight", Outcome.DIFFERS, "before any packing", id="topology has no weight"),
        pytest.param("{name: bimpack}", "bimpack", Outcome.UNKNOWN, "did you mean binpack?", id="a misspelt plugin"),
    ],
)  # fmt: skip
def test_plugins_and_their_arguments(plugin, part, outcome, message):
    one = told(f"{SHORT}  - {plugin}\n", part)
    assert one.outcome is outcome
    assert message in one.message
    assert one.line == 4


@pytest.mark.parametrize(
    ("actions", "changes"),
    [
        ("enqueue, allocate", {"preempt": "observe", "reclaim": "observe"}),
        ("allocate, gangPreempt", {"preempt": "act", "reclaim": "observe"}),
        ("allocate,gangreclaim,shuffle", {"preempt": "observe", "reclaim": "act"}),
        ("enqueue", {"preempt": "observe", "reclaim": "observe", "bind": "observe"}),
    ],
)
def test_actions_switch_features_on(actions, changes):
    assert import_text(f'actions: "{actions}"\ntiers: [{{plugins: [{{name: gang}}]}}]\n').changes["actions"] == changes


def test_a_configmap_that_wraps_it_is_read_with_the_lines_of_the_file():
    wrapped = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  other: 'x: ['\n  volcano-scheduler.conf: |\n"
    )
    wrapped += "".join(f"    {line}\n" for line in NINE.splitlines())
    assert import_text(wrapped).changes == import_text(NINE).changes
    assert [line for line, _, _ in accounts(wrapped, Outcome.UNKNOWN)] == [12, 22, 23]
    broken = "kind: ConfigMap\ndata:\n  a.conf: |\n    actions: [\n"
    with pytest.raises(YamlError, match=r"data\[a.conf\]: not YAML") as caught:
        import_text(broken)
    assert caught.value.line >= 4


def test_the_command_writes_a_policy_that_is_read_again_and_does_not_write_over_another(tmp_path, capsys):
    conf, policy = tmp_path / "volcano-scheduler.conf", tmp_path / "policy.yaml"
    conf.write_text(NINE)
    assert main(["policy", "import", str(conf), "--write", str(policy)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{conf}:6: not understood: tiers[0].plugins[2].name: preempt is an action" in told.err
    read = load_policy(policy)
    assert (read.packing.cpu, read.packing.gpu, read.actions.preempt) == (10, 1, "observe")
    assert read.timeouts == Policy().timeouts
    assert "# line 17: " in policy.read_text()
    assert main(["policy", "import", str(conf), "--write", str(policy)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["policy", "import", str(conf), "--write", str(policy), "--force", "--strict", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["policy"]["packing"]["cpu"] == 10
    assert {one["outcome"] for one in data["accounts"]} == {"taken", "same", "differs", "not understood"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("actions: [allocate]\ntiers: []\n", "1: not understood: actions", id="actions as a list"),
        pytest.param('actions: "allocate"\ntiers: {a: b}\n', "2: not understood: tiers", id="tiers as a mapping"),
        pytest.param('actions: "allocate"\n', "tiers of plugins are missing", id="no tiers"),
        pytest.param("kind: Queue\n", "no scheduler configuration", id="something else"),
        pytest.param("actions: [", "1: not YAML", id="no YAML"),
    ],
)
def test_what_is_no_such_file_is_refused(text, told, tmp_path, capsys):
    path = tmp_path / "c.conf"
    path.write_text(text)
    assert main(["policy", "import", str(path)]) == 2
    assert told in capsys.readouterr().err


def test_the_tables_say_something_of_everything_they_name():
    for table in (ACTIONS, PLUGINS, *ARGUMENTS.values()):
        for name, one in table.items():
            assert one.message, name
            assert one.outcome is not Outcome.UNKNOWN
    assert yaml.safe_load(NINE)
