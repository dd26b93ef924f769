"""`muster policy import`: the policy.yaml that stands for a volcano-scheduler.conf, with an account of every line of it.

The file may be plain or inside its ConfigMap. Nothing is passed over: what has no counterpart, or is not understood, is named
with its line and what it means here.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from muster.cli.connection import add_json
from muster.cli.errors import BAD_INPUT, CommandError
from muster.decide.volcano_conf import Account, Imported
from muster.decide.volcano_plugins import Outcome
from muster.runtime.volcano_file import import_text, policy_text
from muster.runtime.yaml_lines import YamlError

EPILOG = """examples:
  muster policy import volcano-scheduler.conf
  muster policy import volcano-scheduler.conf --write policy.yaml
  kubectl -n volcano-system get configmap volcano-scheduler-configmap -o yaml | muster policy import - --json
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "policy",
        help="a policy from a volcano-scheduler.conf",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_json(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="import", required=True)
    reading = verbs.add_parser(
        "import",
        help="read a volcano-scheduler.conf",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reading.add_argument("file", help="the file; - is the standard input")
    reading.add_argument("--write", type=Path, metavar="FILE", help="write the policy here instead of showing it")
    reading.add_argument("--force", action="store_true", help="write over a file that is there")
    reading.add_argument("--strict", action="store_true", help="end with 1 when something is not understood")
    add_json(reading)
    reading.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, tell and write."""
    source = "standard input" if arguments.file == "-" else arguments.file
    try:
        imported = import_text(_text(arguments.file))
    except YamlError as error:
        raise CommandError(f"{source}{f':{error.line}' if error.line else ''}: {error}", code=BAD_INPUT) from error
    if imported is None:
        raise CommandError(f"{source}: no scheduler configuration: it has actions and tiers", code=BAD_INPUT)
    if imported.problems:
        raise CommandError("\n".join(sentence(one, source=source) for one in imported.problems), code=BAD_INPUT)
    text = policy_text(imported, source=Path(source).name)
    if arguments.write is not None:
        _write(arguments.write, text, force=arguments.force)
    if arguments.json:
        print(json.dumps({"policy": imported.changes, "accounts": msgspec.to_builtins(imported.accounts)}))
    else:
        for one in imported.accounts:
            print(sentence(one, source=source), file=sys.stderr)
        if arguments.write is None:
            print(text, end="")
        else:
            print(f"written: {arguments.write}; check it with: muster lint {arguments.write}", file=sys.stderr)
    return 1 if arguments.strict and _unknown(imported) else 0


def sentence(one: Account, *, source: str) -> str:
    """``volcano-scheduler.conf:14: not understood: tiers[1]…: plugin nodeorder has no argument …``."""
    place = f"{source}:{one.line}" if one.line else source
    value = f" ({one.value})" if one.value and one.value not in one.message else ""
    field = f"{one.field}{value}: " if one.field else ""
    return f"{place}: {one.outcome.value}: {field}{one.message}"


def _unknown(imported: Imported) -> bool:
    return any(one.outcome is Outcome.UNKNOWN for one in imported.accounts)


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}", code=BAD_INPUT) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: not a text file in UTF-8", code=BAD_INPUT) from error


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise CommandError(f"{path}: exists already; --force writes over it", code=BAD_INPUT) from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", code=BAD_INPUT) from error
