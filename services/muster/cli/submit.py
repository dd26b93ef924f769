"""`muster submit`: hand in a job by options or as a manifest file."""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster import client
from muster.bus.messages import FieldError, StatusEvent
from muster.bus.submit_errors import sentence
from muster.cli.connection import add_connection, connected
from muster.cli.errors import BAD_INPUT, CommandError
from muster.cli.follow import print_events
from muster.cli.words import span

EPILOG = """examples:
  muster submit --image registry.example.com/llm:3 --gpus 8 --replicas 4 --topology rack -- python train.py
  muster submit --image registry.example.com/eval:1 --gpu-memory 12288 --gpu-core 30 --wait -- python eval.py
  muster submit job.yaml --queue train-prod          (a Job of batch.volcano.sh/v1alpha1 or batch/v1)
"""
ACCEPT_SECONDS = 15.0
CLOCK_SECONDS = 2.0
"""How far the controller's clock may be from ours."""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "submit",
        help="hand in a job",
        usage="muster submit [FILE] [options] [-- COMMAND …]",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", type=Path, help="manifest (YAML or JSON), - for stdin; or use the options")
    parser.add_argument("--image", help="container image")
    parser.add_argument("--gpus", type=int, metavar="N", help="whole GPUs per pod")
    parser.add_argument("--gpu-memory", type=int, metavar="MIB", help="memory share of one GPU, instead of --gpus")
    parser.add_argument("--gpu-core", type=int, metavar="PERCENT", help="core share of one GPU")
    parser.add_argument("--cpu", help="CPU per pod, such as 8 or 500m")
    parser.add_argument("--memory", help="memory per pod, such as 64Gi")
    parser.add_argument("--replicas", type=int, metavar="N", help="number of pods (1)")
    parser.add_argument(
        "--min", type=int, metavar="N", dest="min_available", help="pods that must start together (all)"
    )
    parser.add_argument("--queue", help="queue")
    parser.add_argument("--priority-class", help="a PriorityClass")
    parser.add_argument("--topology", metavar="LEVEL", help="all pods in one domain of this level, such as rack")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable")
    parser.add_argument("--expected-duration", type=float, metavar="SECONDS", help="how long it is expected to run")
    parser.add_argument("--max-retry", type=int, metavar="N", help="restarts before it has failed")
    parser.add_argument("--namespace", "-n", help="namespace (the tenant's default)")
    parser.add_argument("--name", help="name of the job")
    parser.add_argument("--id", help="submission id; the same id again does nothing (made up when not given)")
    parser.add_argument("--wait", action="store_true", help="follow it until it ends; exit code 1 when it fails")
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Submit, and follow when asked to."""
    values = submission_values(arguments)
    began = time.time()
    async with connected(arguments) as muster:
        job = await muster.submit(**values)
        if arguments.wait:
            return await print_events(job, as_json=arguments.json)
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                event = await job.accepted()
        except client.RejectedError as error:
            raise CommandError(rejection(error.event), code=BAD_INPUT) from error
        except TimeoutError:
            print(f"handed in as {job.id}, but no controller took it within {ACCEPT_SECONDS:g} s")
            print(
                f"it stays in line; look at it with: muster get {job.id} --watch\n"
                f"a tenant that the policy does not name is not served: this one is {arguments.tenant!r} (muster dlq)",
                file=sys.stderr,
            )
            return 1
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(event)))
        return 0
    name = event.job or job.id
    if event.at < began - CLOCK_SECONDS:
        raise CommandError(
            f"{job.id} was submitted {span(began - event.at)} ago, as {name}; the same id makes no second job.\n"
            "nothing was submitted; give another --id, or none"
        )
    print(f"submitted  {name}  {describe(values)}  (id {job.id})")
    print(f"follow it: muster get {job.id} --watch      ask why it waits: muster explain {job.id}", file=sys.stderr)
    return 0


def submission_values(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options and the file ask for, as arguments of `Muster.submit`.

    Raises:
        CommandError: neither or both forms, or a file that cannot be read.
    """
    values: dict[str, Any] = {
        name: getattr(arguments, name) for name in ("id", "namespace", "name") if getattr(arguments, name)
    }
    words, file = arguments.words, arguments.file
    if file is not None:
        if arguments.image or words:
            raise CommandError("give a manifest file or the options with --image, not both", code=BAD_INPUT)
        return {**values, "manifest": with_queue(read_manifest(file), arguments.queue)}
    if not arguments.image:
        raise CommandError(
            "what shall run? Give a manifest file, or --image IMAGE (see muster submit --help)", code=BAD_INPUT
        )
    short = {
        "image": arguments.image,
        "command": words or None,
        "gpus": arguments.gpus,
        "gpu_memory_mib": arguments.gpu_memory,
        "gpu_core_percent": arguments.gpu_core,
        "env": environment(arguments.env) or None,
    }
    for name in ("cpu", "memory", "replicas", "min_available", "queue", "priority_class", "topology",
                 "expected_duration", "max_retry"):  # fmt: skip
        short[name] = getattr(arguments, name)
    return values | {name: value for name, value in short.items() if value is not None}


def environment(pairs: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping.

    Raises:
        CommandError: a word without ``=``.
    """
    for pair in pairs:
        if "=" not in pair:
            raise CommandError(f"--env {pair}: expected NAME=VALUE", code=BAD_INPUT)
    return dict(pair.split("=", 1) for pair in pairs)


def read_manifest(path: Path) -> dict[str, Any]:
    """The one document of a manifest file.

    Raises:
        CommandError: it cannot be read, is no YAML, or holds not exactly one object.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", code=BAD_INPUT) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not a text file in UTF-8", code=BAD_INPUT) from error
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise CommandError(f"{path}: not YAML: {error}", code=BAD_INPUT) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise CommandError(
            f"{path}: expected one job, found {len(documents)} documents; apply several objects with kubectl",
            code=BAD_INPUT,
        )
    manifest: dict[str, Any] = documents[0]
    return manifest


def with_queue(manifest: dict[str, Any], queue: str | None) -> dict[str, Any]:
    """The manifest with the queue of the command line, where one was given."""
    if queue is None:
        return manifest
    if manifest.get("apiVersion", "").startswith("batch.volcano.sh/"):
        return {**manifest, "spec": {**manifest.get("spec", {}), "queue": queue}}
    metadata = manifest.get("metadata", {})
    annotations = {**metadata.get("annotations", {}), "scheduling.volcano.sh/queue-name": queue}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def rejection(event: StatusEvent) -> str:
    """Why a submission was refused, a line a field."""
    errors = event.details.get("errors") or []
    lines = [sentence(msgspec.convert(error, FieldError)) for error in errors]
    return "\n".join([*(lines or [event.message or event.reason]), "nothing was submitted"])


def describe(values: dict[str, Any]) -> str:
    """The job in a few words: ``4 × 8 cards, one rack, queue train-prod``."""
    if "manifest" in values:
        return f"{values['manifest'].get('kind', 'Job')} from a manifest"
    pods = values.get("replicas", 1)
    if values.get("gpus"):
        each = f"{values['gpus']} cards" if values["gpus"] > 1 else "1 card"
    elif values.get("gpu_memory_mib") or values.get("gpu_core_percent"):
        parts = [f"{values['gpu_memory_mib']} MiB" if values.get("gpu_memory_mib") else "",
                 f"{values['gpu_core_percent']} % core" if values.get("gpu_core_percent") else ""]  # fmt: skip
        each = f"a share of a card ({', '.join(part for part in parts if part)})"
    else:
        each = "no card"
    words = [f"{pods} × {each}"]
    if values.get("topology"):
        words.append(f"one {values['topology']}")
    if values.get("queue"):
        words.append(f"queue {values['queue']}")
    return ", ".join(words)
