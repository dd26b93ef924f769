"""Reads policy.yaml strictly: an unknown key or a wrong value is refused with its place and what would be right."""

from pathlib import Path

import msgspec
import yaml

from muster.model.policy import Policy


class PolicyError(ValueError):
    """The policy file cannot be used; the message says where and why."""


def parse_policy(text: str, *, source: str) -> Policy:
    """The policy that a YAML text states; `source` names it in errors.

    Raises:
        PolicyError: not YAML, an unknown key, or a value of the wrong kind.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise PolicyError(f"{source}{where}: not YAML: {getattr(error, 'problem', error)}") from error
    try:
        return msgspec.convert({} if document is None else document, Policy, strict=True)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        raise PolicyError(f"{source}: {where.strip('`').removeprefix('$.') or 'policy'}: {what}") from error


def load_policy(path: Path | None) -> Policy:
    """The policy in a file, or the default policy when no file is named.

    Raises:
        PolicyError: the file cannot be read or is wrong.
    """
    if path is None:
        return Policy()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_policy(text, source=str(path))
