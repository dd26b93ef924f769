"""JSON Schemas and the AsyncAPI document, generated from the message structs.

    python -m muster.bus.schemas --write      write schemas/*.json and schemas/asyncapi.yaml
    python -m muster.bus.schemas --check      say what differs; exit code 1 when anything does

One JSON Schema 2020-12 a message, complete in itself, so that a person with a plain NATS client and one file can submit a job;
and one of policy.yaml.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster.bus import operating, proposals, queries
from muster.bus.envelope import MAJOR, NAMES, type_of
from muster.bus.messages import (
    Cancel,
    DeadLetter,
    Decision,
    Progress,
    StateMessage,
    StatusEvent,
    SubmissionOutcome,
    Submit,
    UsageRecord,
)
from muster.bus.state import OBJECTS
from muster.bus.streams import SUBMISSIONS_BUCKET, StreamName, spec_of
from muster.model.ledger import Commit
from muster.model.policy import Policy

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI = "asyncapi.yaml"
POLICY = "policy.json"
Schema = dict[str, Any]

EXAMPLES: dict[type[msgspec.Struct], tuple[Schema, ...]] = {
    Submit: (
        {
            "id": "llm-2026-11-30-1",
            "short": {
                "image": "registry.example.com/llm:3",
                "command": ["python", "train.py"],
                "gpus": 8,
                "replicas": 4,
                "cpu": "32",
                "memory": "256Gi",
                "queue": "train-prod",
                "topology": "rack",
            },
        },
        {
            "id": "notebook-7",
            "namespace": "team-a",
            "name": "notebook",
            "short": {"image": "registry.example.com/notebook:1", "gpu_memory_mib": 8192, "gpu_core_percent": 25},
        },
        {
            "id": "mpi-12",
            "manifest": {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": "mpi"},
                "spec": {"minAvailable": 1, "tasks": []},
            },
        },
    ),
    Cancel: ({"id": "llm-2026-11-30-1", "reason": "wrong data set"},),
    Progress: ({"step": 1200, "checkpoint_at": 1796000000.0},),
    StatusEvent: (
        {
            "tenant": "team-a",
            "id": "llm-2026-11-30-1",
            "job": "team-a/llm-7f3c",
            "state": "Queued",
            "reason": "NO_ROOM",
            "message": "waits for room: asks 32 cards in one rack, the best rack has 24 free",
            "position": 2,
            "number": 2,
            "at": 1796000000.0,
        },
    ),
}


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One address of the bus. ``sent_by`` is ``tenant`` or a service."""

    name: str
    address: str
    message: type[msgspec.Struct]
    sent_by: str
    reply: type[msgspec.Struct] | None = None
    stream: StreamName | None = None


CHANNELS: tuple[Channel, ...] = (
    Channel(name="submit", address="muster.jobs.submit.{tenant}", message=Submit, sent_by="tenant", stream=StreamName.JOBS),
    Channel(name="cancel", address="muster.jobs.cancel.{tenant}", message=Cancel, sent_by="tenant", stream=StreamName.JOBS),
    Channel(name="progress", address="muster.jobs.progress.{tenant}.{job}", message=Progress, sent_by="tenant", stream=StreamName.PROGRESS),
    Channel(name="status", address="muster.status.{tenant}.{submission}", message=StatusEvent, sent_by="controller", stream=StreamName.STATUS),
    Channel(name="submissions", address=f"$KV.{SUBMISSIONS_BUCKET}.{{tenant}}.{{submission}}", message=SubmissionOutcome, sent_by="controller", stream=StreamName.SUBMISSIONS),
    Channel(name="state", address="muster.state.{kind}.{key}", message=StateMessage, sent_by="watcher", stream=StreamName.STATE),
    Channel(name="ledger", address="muster.ledger.{verb}.{key}", message=Commit, sent_by="scheduler", stream=StreamName.LEDGER),
    Channel(name="decision", address="muster.decision.{verb}.{key}", message=Decision, sent_by="scheduler", stream=StreamName.DECISIONS),
    Channel(name="usage", address="muster.usage.{queue}", message=UsageRecord, sent_by="controller", stream=StreamName.USAGE),
    Channel(name="dead-letter", address="muster.dlq.{origin}", message=DeadLetter, sent_by="controller", stream=StreamName.DLQ),
    Channel(name="explain", address="muster.api.{tenant}.explain", message=queries.ExplainRequest, reply=queries.ExplainReply, sent_by="tenant"),
    Channel(name="gangs", address="muster.api.{tenant}.gangs", message=queries.GangsRequest, reply=queries.GangsReply, sent_by="tenant"),
    Channel(name="nodes", address="muster.api.{tenant}.nodes", message=queries.NodesRequest, reply=queries.NodesReply, sent_by="tenant"),
    Channel(name="queues", address="muster.api.{tenant}.queues", message=queries.QueuesRequest, reply=queries.QueuesReply, sent_by="tenant"),
    Channel(name="submission", address="muster.api.{tenant}.submission", message=queries.SubmissionRequest, reply=queries.SubmissionReply, sent_by="tenant"),
    Channel(name="pause", address="muster.api.{tenant}.pause", message=operating.PauseRequest, reply=operating.PausesReply, sent_by="tenant"),
    Channel(name="resume", address="muster.api.{tenant}.resume", message=operating.ResumeRequest, reply=operating.PausesReply, sent_by="tenant"),
    Channel(name="pauses", address="muster.api.{tenant}.pauses", message=operating.PausesRequest, reply=operating.PausesReply, sent_by="tenant"),
    Channel(name="policy", address="muster.api.{tenant}.policy", message=operating.PolicyRequest, reply=operating.PolicyReply, sent_by="tenant"),
    Channel(name="propose-plan", address="muster.propose.preempt", message=proposals.PlanProposal, reply=proposals.ProposalReply, sent_by="preemptor"),
    Channel(name="propose-withdraw", address="muster.propose.withdraw", message=proposals.WithdrawProposal, reply=proposals.ProposalReply, sent_by="preemptor"),
    Channel(name="propose-cordon", address="muster.propose.cordon", message=proposals.CordonProposal, reply=proposals.ProposalReply, sent_by="autoscaler"),
    Channel(name="propose-uncordon", address="muster.propose.uncordon", message=proposals.UncordonProposal, reply=proposals.ProposalReply, sent_by="autoscaler"),
    Channel(name="propose-remember", address="muster.propose.remember", message=proposals.RememberProposal, reply=proposals.ProposalReply, sent_by="autoscaler"),
)  # fmt: skip


def schema_of(kind: type[msgspec.Struct]) -> Schema:
    """The JSON Schema of one message, complete in itself."""
    extra = tuple(OBJECTS.values()) if kind is StateMessage else ()
    (reference, *_), definitions = msgspec.json.schema_components((kind, *extra), ref_template="#/$defs/{name}")
    name = str(reference["$ref"]).rpartition("/")[2]
    top = definitions.pop(name)
    if kind is Submit:
        top["oneOf"] = [_present("short", absent="manifest"), _present("manifest", absent="short")]
    if kind is StateMessage:
        top["allOf"] = [_object_of(word, found.__name__) for word, found in OBJECTS.items()]
    result: Schema = {"$schema": DIALECT, "$id": f"urn:muster:{NAMES[kind]}:v{MAJOR}", **top}
    if kind in EXAMPLES:
        result["examples"] = list(EXAMPLES[kind])
    if definitions:
        result["$defs"] = definitions
    return result


def policy_schema() -> Schema:
    """The JSON Schema of policy.yaml, for editors: what it takes is what the services take."""
    (reference, *_), definitions = msgspec.json.schema_components((Policy,), ref_template="#/$defs/{name}")
    top = definitions.pop(str(reference["$ref"]).rpartition("/")[2])
    return {"$schema": DIALECT, "$id": f"urn:muster:policy:v{MAJOR}", **top, "$defs": definitions}


def asyncapi() -> Schema:
    """The AsyncAPI 3.0 document: every subject, what travels there, and who sends it."""
    channels: Schema = {}
    operations: Schema = {}
    replies: Schema = {}
    for channel in CHANNELS:
        named = NAMES[channel.message]
        entry: Schema = {
            "address": channel.address,
            "description": _told(channel),
            "messages": {named: {"$ref": f"#/components/messages/{named}"}},
            "parameters": {
                parameter: {"description": f"The {parameter}, as one escaped token."}
                for parameter in _parameters(channel.address)
            },
        }
        if channel.stream is not None:
            entry["x-stream"] = str(channel.stream)
        channels[channel.name] = entry
        operation: Schema = {
            "action": "receive" if channel.sent_by == "tenant" else "send",
            "channel": {"$ref": f"#/channels/{channel.name}"},
            "summary": f"Sent by the {channel.sent_by}.",
        }
        if channel.reply is not None:
            answer = NAMES[channel.reply]
            replies[f"{channel.name}-reply"] = {
                "address": None,
                "messages": {answer: {"$ref": f"#/components/messages/{answer}"}},
            }
            operation["reply"] = {
                "address": {"location": "$message.header#/reply"},
                "channel": {"$ref": f"#/channels/{channel.name}-reply"},
            }
        operations[channel.name] = operation
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Muster",
            "version": str(MAJOR),
            "description": (
                "GPU gang scheduling over NATS. A token keeps A-Z a-z 0-9 - _ /; every other byte of its UTF-8 text is "
                "written =XX in upper-case hexadecimal."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {**channels, **replies},
        "operations": operations,
        "components": {"messages": {named: _message(kind, named) for kind, named in NAMES.items()}},
    }


def documents() -> dict[str, str]:
    """Every file by name."""
    files = {
        f"{named}.json": json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"
        for kind, named in NAMES.items()
    }
    files[POLICY] = json.dumps(policy_schema(), indent=2, ensure_ascii=False) + "\n"
    files[ASYNCAPI] = yaml.safe_dump(asyncapi(), sort_keys=False, allow_unicode=True, width=120)
    return files


def differences(directory: Path) -> list[str]:
    """What stands in the directory and should not, or not so; one sentence a file."""
    wanted = documents()
    found = (
        {path.name for path in directory.iterdir() if path.suffix in {".json", ".yaml"}}
        if directory.is_dir()
        else set()
    )
    told = [f"{name} belongs to no message" for name in sorted(found - wanted.keys())]
    for name, text in sorted(wanted.items()):
        if name not in found:
            told.append(f"{name} is missing")
        elif (directory / name).read_text() != text:
            told.append(f"{name} differs from the message structs")
    return told


def write(directory: Path) -> None:
    """Make the directory hold exactly the generated files."""
    directory.mkdir(parents=True, exist_ok=True)
    wanted = documents()
    for path in directory.iterdir():
        if path.suffix in {".json", ".yaml"} and path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (directory / name).write_text(text)


def main(arguments: list[str] | None = None) -> int:
    """The command line; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m muster.bus.schemas", description="Generate the message schemas.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the files")
    action.add_argument("--check", action="store_true", help="compare the files")
    parser.add_argument("--directory", type=Path, default=Path("schemas"), help="where they are (default: schemas)")
    given = parser.parse_args(arguments)
    if given.write:
        write(given.directory)
        return 0
    told = differences(given.directory)
    for line in told:
        print(line, file=sys.stderr)
    if told:
        print("run: python -m muster.bus.schemas --write", file=sys.stderr)
    return 1 if told else 0


def _present(name: str, *, absent: str) -> Schema:
    return {
        "required": [name],
        "properties": {name: {"not": {"type": "null"}}, absent: {"type": "null"}},
    }


def _object_of(kind: str, definition: str) -> Schema:
    return {
        "if": {"properties": {"kind": {"const": kind}}},
        "then": {"properties": {"object": {"anyOf": [{"$ref": f"#/$defs/{definition}"}, {"type": "null"}]}}},
    }


def _message(kind: type[msgspec.Struct], named: str) -> Schema:
    return {
        "name": type_of(kind),
        "summary": (kind.__doc__ or "").partition("\n")[0].strip(),
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "properties": {
                "ce-specversion": {"const": "1.0"},
                "ce-id": {"type": "string"},
                "ce-source": {"type": "string"},
                "ce-type": {"const": type_of(kind)},
                "ce-time": {"type": "string", "format": "date-time"},
                "ce-subject": {"type": "string"},
                "traceparent": {"type": "string"},
                "content-encoding": {"enum": ["deflate"]},
            },
        },
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": f"./{named}.json"},
        },
    }


def _told(channel: Channel) -> str:
    if channel.stream is not None:
        return spec_of(channel.stream).description + "."
    return "Request and reply. A refusal has the headers Nats-Service-Error-Code and Nats-Service-Error, and no body."


def _parameters(address: str) -> Iterable[str]:
    return [part[1:-1] for part in address.split(".") if part.startswith("{")]


if __name__ == "__main__":
    sys.exit(main())
