"""The field tables are those of the CRD chart, and what is asked for in a submission never shows a generated path."""

from pathlib import Path

import pytest
import yaml

from muster.decide.field_problems import field_problems
from muster.decide.known_fields import KINDS, POD_TYPES, TYPES, VOLCANO_TYPES, parse_types, unknown_fields
from muster.decide.spelling import likely, quantity_doubt
from muster.scenarios.format import Scenario

CRDS = Path(__file__).parents[2] / "helm" / "muster-crds" / "crds"
CUSTOM = [
    pytest.param("jobs.batch", "VolcanoJobSpec", id="Job"),
    pytest.param("queues.scheduling", "QueueSpec", id="Queue"),
    pytest.param("podgroups.scheduling", "PodGroupSpec", id="PodGroup"),
]


def differences(schema, form, path):
    if form.startswith("["):
        yield from differences(schema["items"], form[1:-1], path)
        return
    fields = parse_types(VOLCANO_TYPES).get(form)
    if fields is None:
        return
    yield from (f"{path}.{name}" for name in schema["properties"].keys() ^ fields.keys())
    for name in schema["properties"].keys() & fields.keys():
        yield from differences(schema["properties"][name], fields[name], f"{path}.{name}")


@pytest.mark.parametrize(("crd", "form"), CUSTOM)
def test_the_fields_are_those_of_the_crd(crd, form):
    [version] = yaml.safe_load((CRDS / f"{crd}.volcano.sh.yaml").read_text())["spec"]["versions"]
    assert list(differences(version["schema"]["openAPIV3Schema"]["properties"]["spec"], form, "spec")) == []


def test_every_type_that_is_named_is_there():
    scalars = {"string", "int", "bool", "any", "quantity", "time", "number", "intstr"}
    named = {expression.strip("[]{}") for fields in TYPES.values() for expression in fields.values()}
    assert named - scalars - TYPES.keys() == {"PodStatus", "JobStatus"}, "written by Kubernetes, not by people"
    assert set(KINDS.values()) <= TYPES.keys()
    assert not parse_types(POD_TYPES).keys() & parse_types(VOLCANO_TYPES).keys()


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"apiVersion": "v1", "kind": "Secret", "spec": {"x": 1}}, id="a kind that is not known"),
        pytest.param({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 5}}, id="something else than a list"),
        pytest.param({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}, id="names of a map"),
        pytest.param({"apiVersion": "v1", "kind": "Pod", "spec": None}, id="nothing"),
    ],
)
def test_nothing_is_unknown_of(document):
    assert list(unknown_fields(document)) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64GB", "did you mean 64G or 64Gi?"),
        ("1.5tib", "did you mean 1.5Ti?"),
        ("8 gb", "did you mean 8G or 8Gi?"),
        ("-1Gi", "-1Gi is below 0"),
        ("many", "'many' is no quantity such as 2, 500m or 64Gi"),
        ("64Gi", ""),
        ("500m", ""),
        ("1e3", ""),
    ],
)
def test_what_a_quantity_was_likely_meant_to_be(text, says):
    assert quantity_doubt(text).endswith(says)
    assert bool(quantity_doubt(text)) == bool(says)


def test_the_nearest_word_is_proposed_and_none_when_none_is_near():
    assert likely("MIN-AVAILABLE", ["min_available", "name"]) == "min_available"
    assert likely("gpuz", ["gpus", "cpu"]) == "gpus"
    assert likely("colour", ["gpus", "cpu"]) == ""


def test_all_that_is_wrong_with_a_value_is_told_at_once_with_what_would_be_right():
    data = {
        "nodes": [{"name": 1, "gpu": 8, "gpus": "8", "labels": []}, 5],
        "pending": [{"preemptible": "yes", "preemption_policy": "never", "tasks": {}}],
        "running": "x",
    }
    told = {problem.field: problem.message for problem in field_problems(data, Scenario)}
    assert told["nodes[0].name"] == "1 is a number; give a text, in quotes"
    assert told["nodes[0].gpu"] == "there is no field gpu here; did you mean gpus?"
    assert told["nodes[0].gpus"] == '"8" is a text; give a whole number from 0 to 1024'
    assert told["nodes[0].labels"] == "this is a list; give a mapping of names to values"
    assert told["nodes[1]"].startswith("5 is a number; give a mapping with name")
    assert told["pending[0].job"] == "is missing"
    assert told["pending[0].preemptible"] == '"yes" is a text; give true or false'
    assert told["pending[0].preemption_policy"].endswith("did you mean Never?")
    assert told["pending[0].tasks"] == "this is a mapping; give a list"
    assert told["running"] == '"x" is a text; give a list'
