"""policy.yaml is read strictly: every problem at once, with line, field and what would be right."""

import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
import yaml

from muster.bus.schemas import policy_schema
from muster.model.policy import Policy
from muster.runtime.policy_file import PolicyError, parse_policy

ROOT = Path(__file__).parents[2]
SCHEMA = jsonschema_rs.Draft202012Validator(policy_schema())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("wieght: 1", "p:1: wieght: no key wieght is known here; known are actions", id="an unknown key"),
        pytest.param("\npackings:\n  cpu: 1", "p:2: packings: no key packings is known here; did you mean packing?", id="the line of a misspelt key"),
        pytest.param("packing:\n  GPU: 1", "p:2: packing.GPU: no key GPU is known here; did you mean gpu?", id="a key in capitals"),
        pytest.param("schedulerName: x", "did you mean scheduler_name?", id="a key in the spelling of Kubernetes"),
        pytest.param("packing:\n  cpu: -1", "p:2: packing.cpu: -1 is too small: 0 or more is right", id="a negative weight"),
        pytest.param("waiting: {percent: 120}", "waiting.percent: 120 is too large: 0 to 100 is right", id="more than all"),
        pytest.param("waiting: {percent: 12.5}", "waiting.percent: here stands 12.5, where a whole number belongs", id="a fraction"),
        pytest.param("waiting: {percent: 12.0}", "where a whole number belongs; write 12", id="a whole number with a point"),
        pytest.param("timeouts: {start: 5m}", 'timeouts.start: here stands the text "5m", where a number belongs; in seconds that is 300', id="a duration with a unit"),
        pytest.param("timeouts: {start: .nan}", "is no number that can be used", id="no number at all"),
        pytest.param("bind_concurrency: 0", "0 is too small: 1 or more is right", id="nothing at once"),
        pytest.param("actions: {bind: acts}", 'actions.bind: here stands the text "acts"; here belongs act or observe; did you mean act?', id="a word that is nearly one"),
        pytest.param("actions: {bind: on}", "actions.bind: here stands on; here belongs act or observe", id="a switch where a word belongs"),
        pytest.param("aliases: volcano", 'aliases: here stands the text "volcano", where a list belongs; write [volcano]', id="one word where a list belongs"),
        pytest.param("aliases: [1]", 'aliases[0]: here stands 1, where text belongs; write "1"', id="a number where a name belongs"),
        pytest.param("packing:", "packing: here stands nothing, where a mapping of keys to values belongs", id="a key without anything under it"),
        pytest.param("packing: {cpu: 1}\npacking: {cpu: 2}", "p:2: packing: stands here twice: first in line 1", id="the same key twice"),
        pytest.param("queues:\n  q:\n    namespaces: [a]\n    non_preemptible: 1", "p:4: queues.q.non_preemptible: here stands 1, where true or false belongs", id="within the rules of a queue"),
        pytest.param("tenants:\n  a:\n    namespaces: [x]", "p:2: tenants.a.default_namespace: default is none of the tenant's namespaces; name one of x", id="a default that is not allowed"),
        pytest.param("timeouts:\n  backoff_initial: 400", "p:2: timeouts.backoff_initial: 400 is above timeouts.backoff_max, which is 300", id="the first above the last"),
        pytest.param("aliases: [muster]", "p:1: aliases: muster is scheduler_name already", id="an alias that is the name"),
        pytest.param("scheduler_name: ''", "scheduler_name: must not be empty", id="no name"),
        pytest.param("a: 1\n---\nb: 2", "p:3: one document is expected, and here a second begins", id="two documents"),
        pytest.param("a: 2026-13-45", "not YAML", id="a date that is none"),
        pytest.param("packing: {<<: {cpu: 1}}", "no key << is known here", id="merged keys"),
        pytest.param("- 1", "p:1: here stands a list, where a mapping of keys to values belongs", id="a list as the whole"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_what_would_be_right(text, told):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, source="p")
    assert told in str(caught.value)
    assert len(caught.value.problems) == 1


def test_every_problem_is_told_at_once_in_the_order_of_the_lines():
    text = "packing:\n  cpu: -1\n  gup: 2\nwaiting:\n  percent: 200\nactions: {cordon: never}\n"
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, source="p")
    found = [(one.line, one.field) for one in caught.value.problems]
    assert found == [(2, "packing.cpu"), (3, "packing.gup"), (5, "waiting.percent"), (6, "actions.cordon")]
    assert len(str(caught.value).splitlines()) == 4


def test_every_field_can_be_named_and_the_schema_takes_what_the_services_take():
    whole = json.loads(msgspec.json.encode(Policy()))
    text = yaml.safe_dump(whole)
    assert parse_policy(text, source="p") == Policy()
    assert SCHEMA.is_valid(whole)
    rules = "queues:\n  '*': {namespaces: [a], non_preemptible: false, grace_max: 20}\n  b: {grace_max: null}\n"
    policy = parse_policy(rules, source="p")
    assert policy.rules("anything").grace_max == 20
    assert policy.rules("b").non_preemptible
    assert SCHEMA.is_valid(yaml.safe_load(rules))
    assert parse_policy("", source="p") == Policy()
    assert parse_policy("# nothing but a remark\n", source="p") == Policy()


@pytest.mark.parametrize(
    "text",
    ["wieght: 1", "packing: {cpu: -1}", "waiting: {percent: 120}", "actions: {bind: acts}", "aliases: volcano"],
)
def test_the_schema_refuses_what_the_services_refuse(text):
    assert not SCHEMA.is_valid(yaml.safe_load(text))
