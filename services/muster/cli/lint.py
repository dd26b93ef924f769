"""`muster lint`: checks manifests before they are applied, with the likely meaning of what looks wrong."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from muster.cli.connection import add_json
from muster.cli.errors import BAD_INPUT, CommandError
from muster.decide.findings import Problem
from muster.decide.linting import Finding, lint_document
from muster.runtime.policy_file import PolicyError, load_policy

EPILOG = """examples:
  muster lint job.yaml queues.yaml
  muster lint manifests/ --json
"""
ENDINGS = frozenset({".yaml", ".yml", ".json"})


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "lint",
        help="check manifests before they are applied",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR", help="manifests, or folders of them")
    parser.add_argument("--policy", type=Path, help="policy.yaml (what counts as a card, as an absurd amount)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check every document; 1 when one has a problem."""
    try:
        policy = load_policy(arguments.policy)
    except PolicyError as error:
        raise CommandError(str(error), code=BAD_INPUT) from error
    found: list[tuple[str, Finding]] = []
    documents = 0
    for path in files_of(arguments.paths):
        for number, document in enumerate(read_documents(path)):
            documents += 1
            where = str(path) if number == 0 else f"{path}#{number + 1}"
            found += [(where, finding) for finding in lint_document(document, policy=policy)]
    problems = sum(isinstance(finding, Problem) for _, finding in found)
    if arguments.json:
        rows = [
            {
                "file": where,
                "kind": "problem" if isinstance(finding, Problem) else "note",
                "field": finding.field,
                "value": finding.value if isinstance(finding, Problem) else "",
                "message": finding.message,
            }
            for where, finding in found
        ]
        print(json.dumps(rows))
        return 1 if problems else 0
    for where, finding in found:
        field = f"{finding.field}: " if finding.field else ""
        mark = "" if isinstance(finding, Problem) else "note: "
        print(f"{where}: {mark}{field}{finding.message}")
    print(f"{counted(documents, 'document')}, {counted(problems, 'problem')}", file=sys.stderr)
    return 1 if problems else 0


def counted(number: int, thing: str) -> str:
    """``1 document``, ``2 documents``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def files_of(paths: list[Path]) -> list[Path]:
    """The manifest files that these paths name.

    Raises:
        CommandError: a path does not exist.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(item for item in path.rglob("*") if item.suffix in ENDINGS)
        elif path.exists():
            files.append(path)
        else:
            raise CommandError(f"{path}: no such file", code=BAD_INPUT)
    return files


def read_documents(path: Path) -> list[Any]:
    """The YAML documents of a file.

    Raises:
        CommandError: it cannot be read or is no YAML.
    """
    try:
        return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", code=BAD_INPUT) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not a text file in UTF-8", code=BAD_INPUT) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise CommandError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}", code=BAD_INPUT) from error
