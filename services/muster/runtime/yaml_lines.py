"""YAML with the line of everything in it, for messages about what a file says."""

from typing import Any, NamedTuple

import yaml


class Lined(NamedTuple):
    """A document; lines from 1 by path (``tiers[0].plugins[1].name``); paths that stand twice, of which the last counts."""

    document: Any
    lines: dict[str, int]
    twice: tuple[str, ...]


class YamlError(ValueError):
    """The text is no YAML; `line` says where, 0 when nobody knows."""

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_lined(text: str) -> list[Lined]:
    """The documents of a YAML text; empty ones are left out.

    Raises:
        YamlError: it cannot be read.
    """
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 0
        raise YamlError(f"not YAML: {getattr(error, 'problem', None) or error}", line=line) from error
    except ValueError as error:  # a date that is none, and the like
        raise YamlError(f"not YAML: {error}", line=0) from error
    found = []
    for node, document in zip(nodes, documents, strict=True):
        if document is not None:
            lines: dict[str, int] = {}
            twice: list[str] = []
            _walk(node, "", lines, twice, frozenset())
            found.append(Lined(document, lines, tuple(twice)))
    return found


def _walk(node: yaml.Node, path: str, lines: dict[str, int], twice: list[str], above: frozenset[int]) -> None:
    if id(node) in above:
        return  # an anchor that contains itself
    above |= {id(node)}
    if isinstance(node, yaml.MappingNode):
        here: set[str] = set()
        for key, child in node.value:
            name = str(key.value)
            under = f"{path}.{name}" if path else name
            if name in here:
                twice.append(under)
            here.add(name)
            _walk(child, under, lines, twice, above)
            lines[under] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            under = f"{path}[{number}]"
            _walk(child, under, lines, twice, above)
            lines[under] = child.start_mark.line + 1
