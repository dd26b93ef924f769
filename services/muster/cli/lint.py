"""`muster lint`: checks manifests, a policy.yaml or a volcano-scheduler.conf before they are applied, and a running cluster.

Files are judged one by one, with the likely meaning of what looks wrong, and together: sums of queues, jobs that their queue
does not take, rules for queues that do not exist. Problems end with 1; notes only tell.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster.bus.errors import BusError
from muster.cli.connection import add_connection, nats_url
from muster.cli.errors import BAD_INPUT, CommandError
from muster.cli.lint_cluster import seen_in
from muster.decide.findings import Note, Problem
from muster.decide.linting import Finding, lint_document
from muster.decide.linting_documents import surroundings_of
from muster.decide.linting_queues import Surroundings, Told, lint_queues
from muster.decide.volcano_conf import Account, Imported
from muster.decide.volcano_plugins import Outcome
from muster.model.policy import Policy
from muster.runtime.policy_file import PolicyError, load_policy, read_policy
from muster.runtime.volcano_file import import_text
from muster.runtime.yaml_lines import YamlError

EPILOG = """examples:
  muster lint job.yaml queues.yaml
  muster lint manifests/ --json
  muster lint policy.yaml queues.yaml      a policy, against the queues that it is for
  muster lint volcano-scheduler.conf       what becomes of it here
  muster lint --cluster                    queues, jobs and policy of a running Muster
"""
ENDINGS = frozenset({".yaml", ".yml", ".json"})


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, and where it is."""

    file: str
    line: int
    finding: Finding

    def data(self) -> dict[str, Any]:
        """For programs."""
        problem = isinstance(self.finding, Problem)
        found = {
            "file": self.file,
            "kind": "problem" if problem else "note",
            "field": self.finding.field,
            "value": self.finding.value if isinstance(self.finding, Problem) else "",
            "message": self.finding.message,
        }
        return {**found, "line": self.line} if self.line else found

    def text(self) -> str:
        """For people."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        mark = "" if isinstance(self.finding, Problem) else "note: "
        field = f"{self.finding.field}: " if self.finding.field else ""
        return f"{place}: {mark}{field}{self.finding.message}"


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "lint",
        help="check manifests, a policy or a running cluster",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="FILE|DIR", help="manifests and the like, or folders of them"
    )
    parser.add_argument("--policy", type=Path, help="the policy to judge by (what counts as a card, rules of queues)")
    parser.add_argument("--cluster", action="store_true", help="judge what stands in a running Muster")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything; 1 when there is a problem."""
    if not arguments.paths and not arguments.cluster:
        raise CommandError("lint what? name files or folders, or --cluster", code=BAD_INPUT)
    try:
        given = load_policy(arguments.policy) if arguments.policy is not None else None
    except PolicyError as error:
        raise CommandError(str(error), code=BAD_INPUT) from error
    rows, documents = _files(files_of(arguments.paths), given)
    if arguments.cluster:
        rows += asyncio.run(_cluster(arguments, given))
    problems = sum(isinstance(row.finding, Problem) for row in rows)
    if arguments.json:
        print(json.dumps([row.data() for row in rows]))
        return 1 if problems else 0
    for row in rows:
        print(row.text())
    seen = counted(documents, "document") if arguments.paths else "the cluster"
    print(f"{seen}, {counted(problems, 'problem')}", file=sys.stderr)
    return 1 if problems else 0


def counted(number: int, thing: str) -> str:
    """``1 document``, ``2 documents``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# --- files -----------------------------------------------------------------------------------------------------------


def _files(files: list[Path], given: Policy | None) -> tuple[list[Row], int]:
    """The findings in these files, and how many documents they are."""
    rows: list[Row] = []
    manifests: list[tuple[str, Any]] = []
    policies: list[tuple[str, Policy, dict[str, int]]] = []
    total = 0
    for path in files:
        text = _text(path)
        conf = _conf(path, text)
        if conf is not None:
            total += 1
            rows += _accounts(str(path), conf)
            continue
        documents = _documents(path, text)
        total += len(documents)
        if len(documents) == 1 and is_policy(path, documents[0]):
            read, problems = _policy(path, text)
            rows += problems
            policies += read
        else:
            manifests += [
                (str(path) if number == 0 else f"{path}#{number + 1}", one) for number, one in enumerate(documents)
            ]
    policy = given or next((policy for _, policy, _ in policies), Policy())
    for where, document in manifests:
        rows += [Row(file=where, line=0, finding=one) for one in lint_document(document, policy=policy)]
    around = surroundings_of((document for _, document in manifests), policy=policy)
    rows += _together(around, [where for where, _ in manifests], policies, rows)
    return rows, total


def _together(
    around: Surroundings,
    places: list[str],
    policies: list[tuple[str, Policy, dict[str, int]]],
    before: Iterable[Row],
) -> Iterable[Row]:
    """What the files say together; what was found in one of them already is not repeated."""
    known = {(row.finding.field, row.finding.message) for row in before}
    for about, finding in lint_queues(around):
        if (finding.field, finding.message) in known:
            continue
        if about == "policy" and policies:
            source, _, lines = policies[0]
            yield Row(file=source, line=_line(lines, finding.field), finding=finding)
        else:
            yield Row(file=", ".join(dict.fromkeys(places)) if len(places) == 1 else about, line=0, finding=finding)


def is_policy(path: Path, document: Any) -> bool:
    """Whether a document is a policy.yaml: no Kubernetes object, and named or made like one."""
    if not isinstance(document, Mapping) or "kind" in document or "apiVersion" in document:
        return False
    known = set(Policy.__struct_fields__)
    return path.stem.startswith("policy") or any(str(key) in known for key in document)


def _policy(path: Path, text: str) -> tuple[list[tuple[str, Policy, dict[str, int]]], list[Row]]:
    try:
        policy, lines = read_policy(text, source=str(path))
    except PolicyError as error:
        return [], [
            Row(
                file=str(path),
                line=one.line,
                finding=Problem(field=one.field, value=one.value, message=one.message),
            )
            for one in error.problems
        ]
    return [(str(path), policy, lines)], []


def _line(lines: Mapping[str, int], field: str) -> int:
    while field not in lines and field:
        field = field.rpartition(".")[0]
    return lines.get(field, 0)


def _conf(path: Path, text: str) -> Imported | None:
    if "actions" not in text and "tiers" not in text:
        return None
    try:
        return import_text(text)
    except YamlError as error:
        raise CommandError(f"{path}{f':{error.line}' if error.line else ''}: {error}", code=BAD_INPUT) from error


def _accounts(source: str, imported: Imported) -> Iterable[Row]:
    for one in imported.problems:
        finding = Problem(field=one.field, value=one.value, message=one.message)
        yield Row(file=source, line=one.line, finding=finding)
    for one in imported.accounts:
        yield Row(file=source, line=one.line, finding=Note(field=one.field, message=_account(one)))


def _account(one: Account) -> str:
    value = f"{one.value}: " if one.value and one.value not in one.message else ""
    return f"{value}{one.message}" if one.outcome is Outcome.TAKEN else f"{one.outcome.value}: {value}{one.message}"


def files_of(paths: list[Path]) -> list[Path]:
    """The files that these paths name.

    Raises:
        CommandError: a path does not exist.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(item for item in path.rglob("*") if _is_meant(item))
        elif path.exists():
            files.append(path)
        else:
            raise CommandError(f"{path}: no such file", code=BAD_INPUT)
    return files


def _is_meant(path: Path) -> bool:
    """Whether a file of a folder is looked at: other programs have .conf files too."""
    return path.suffix in ENDINGS or (path.suffix == ".conf" and "scheduler" in path.name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", code=BAD_INPUT) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not a text file in UTF-8", code=BAD_INPUT) from error


def _documents(path: Path, text: str) -> list[Any]:
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise CommandError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}", code=BAD_INPUT) from error


# --- a cluster -------------------------------------------------------------------------------------------------------


async def _cluster(arguments: argparse.Namespace, given: Policy | None) -> list[Row]:
    url = nats_url(arguments)
    try:
        seen = await seen_in(url, tenant=arguments.tenant, policy=given)
    except BusError as error:
        raise CommandError(f"{url}: {error}") from error
    told: list[Told] = list(lint_queues(seen.surroundings))
    if seen.policy_problem:
        told.append(Told("policy", Problem(field="", value="", message=f"its file is refused: {seen.policy_problem}")))
    if given is None and seen.policy_from.startswith("the defaults"):
        told.append(Told("policy", Note(field="", message=f"judged by {seen.policy_from}")))
    return [Row(file=about, line=0, finding=finding) for about, finding in told]
