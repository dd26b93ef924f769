"""volcano-scheduler.conf from a file: plain, or inside the ConfigMap that carries it; and the policy.yaml that stands for it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import yaml

from muster.decide.volcano_conf import Account, Imported, import_conf, is_volcano_conf
from muster.decide.volcano_plugins import Outcome
from muster.runtime.policy_file import parse_policy
from muster.runtime.yaml_lines import Lined, YamlError, read_lined


class Conf(NamedTuple):
    """A configuration that was found, with the lines of the file that it is in."""

    document: Any
    lines: dict[str, int]
    inside: str
    """The key of the ConfigMap that it is under; '' when it is the file itself."""
    twice: tuple[str, ...]


def find_confs(text: str) -> list[Conf]:
    """The configurations in a text: documents of that form, and those under keys of ConfigMaps.

    Raises:
        YamlError: the text, or what is inside a ConfigMap, is no YAML.
    """
    found: list[Conf] = []
    for one in read_lined(text):
        if is_volcano_conf(one.document):
            found.append(Conf(one.document, one.lines, "", one.twice))
        elif isinstance(one.document, Mapping) and one.document.get("kind") == "ConfigMap":
            found += _inside(one)
    return found


def _inside(config_map: Lined) -> Iterable[Conf]:
    for key, text in (config_map.document.get("data") or {}).items():
        if not isinstance(text, str):
            continue
        # Of a block of text the first line is the one after its key.
        begins = config_map.lines.get(f"data.{key}", 0)
        try:
            inner = read_lined(text)
        except YamlError as error:
            if not str(key).endswith(".conf"):
                continue
            raise YamlError(f"data[{key}]: {error}", line=begins + error.line) from error
        for one in inner:
            if is_volcano_conf(one.document):
                yield Conf(one.document, {path: begins + line for path, line in one.lines.items()}, str(key), one.twice)


def import_text(text: str) -> Imported | None:
    """What the one configuration in a text becomes; None when there is none.

    Raises:
        YamlError: it is no YAML, or there is more than one configuration.
    """
    confs = find_confs(text)
    if not confs:
        return None
    if len(confs) > 1:
        raise YamlError("there is more than one scheduler configuration in this file", line=0)
    (conf,) = confs
    imported = import_conf(conf.document, conf.lines)
    twice = tuple(
        Account(
            line=conf.lines.get(path, 0),
            field=path,
            value="",
            outcome=Outcome.UNKNOWN,
            message="stands there twice; the last one counts",
        )
        for path in conf.twice
    )
    accounts = sorted((*imported.accounts, *twice), key=lambda one: one.line)
    return msgspec.structs.replace(imported, accounts=tuple(accounts))


def policy_text(imported: Imported, *, source: str) -> str:
    """The policy.yaml that stands for a configuration, with what does not do the same here as remarks.

    Raises:
        PolicyError: it would not be read; a defect of the import.
    """
    lines = [f"# From {source}. What is not named here has its default."]
    for one in imported.accounts:
        if one.outcome in {Outcome.DIFFERS, Outcome.UNKNOWN}:
            place = f"line {one.line}: " if one.line else ""
            lines.append(f"# {place}{one.field}: {'not understood: ' if one.outcome is Outcome.UNKNOWN else ''}{one.message}")  # fmt: skip
    body = yaml.safe_dump(imported.changes, sort_keys=False) if imported.changes else "{}\n"
    text = "\n".join(line.replace("\n", " ") for line in lines) + "\n" + body
    parse_policy(text, source="policy.yaml")
    return text
