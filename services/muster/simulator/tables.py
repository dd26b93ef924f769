"""meta.k8s.io/v1 Tables: what `kubectl get` prints, computed by the server as a real one does.

Built-in kinds have hand-written columns, custom resources those of their CRD, everything else NAME and AGE.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from muster.simulator.columns import AGE, BUILT_IN_COLUMNS, NAME, Cell, Column, JsonObject, since
from muster.simulator.resources import PrinterColumn, ResourceType

_STEP = re.compile(
    r"""\.(?P<name>(?:[^.\[\\]|\\.)+)|\[(?P<index>\d+|\*)\]|\['(?P<quoted>[^']+)'\]
                       |\[\?\(@\.(?P<key>[\w.]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]""",
    re.VERBOSE,
)


def json_path_values(path: str, obj: Any) -> list[Any]:
    """What a CRD column's JSONPath finds: names, indexes, [*] and [?(@.key=="value")]."""
    values = [obj]
    for step in _STEP.finditer(path if path.startswith((".", "[")) else "." + path):
        found: list[Any] = []
        for value in values:
            name = step["name"] or step["quoted"]
            if name is not None:
                name = name.replace("\\.", ".")
                if isinstance(value, Mapping) and value.get(name) is not None:
                    found.append(value[name])
            elif isinstance(value, list):
                if step["key"] is not None:
                    found += [item for item in value if str(item.get(step["key"])) == step["value"]]
                elif step["index"] == "*":
                    found += value
                elif int(step["index"]) < len(value):
                    found.append(value[int(step["index"])])
        values = found
    return values


def _custom_cell(column: PrinterColumn) -> Callable[[JsonObject, float], Cell]:
    def cell(obj: JsonObject, now: float) -> Cell:
        values = json_path_values(column.json_path, obj)
        if not values:
            return None
        value = values[0]
        match column.type:
            case "date":
                return since(str(value), now)
            case "integer" | "number" | "boolean":
                return value
            case _:
                if isinstance(value, bool):
                    return "true" if value else "false"
                if isinstance(value, Mapping | list):
                    return orjson.dumps(value).decode()
                return str(value)

    return cell


def columns_of(resource_type: ResourceType, version: str) -> tuple[Column, ...]:
    """The columns of a type as one version shows them."""
    if resource_type.custom:
        served = resource_type.version(version)
        columns: Sequence[PrinterColumn] = served.columns if served is not None else ()
        if not columns:
            return (NAME, AGE)
        return (
            NAME,
            *(
                Column(
                    column.name,
                    _custom_cell(column),
                    type=column.type,
                    priority=column.priority,
                    format=column.format,
                    description=column.description,
                )
                for column in columns
            ),
        )
    return BUILT_IN_COLUMNS.get("events" if resource_type.plural == "events" else resource_type.key, (NAME, AGE))


def render_table(
    columns: Sequence[Column],
    objects: Iterable[JsonObject],
    *,
    now: float,
    metadata: JsonObject,
    include: str = "Metadata",
) -> JsonObject:
    """A Table with one row per object; `include` says what each row carries: Metadata, Object or None."""
    rows: list[JsonObject] = []
    for obj in objects:
        row: JsonObject = {"cells": [column.cell(obj, now) for column in columns]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        rows.append(row)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description or column.name,
            "priority": column.priority,
        }
        for column in columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }
