"""PATCH bodies as pure functions: JSON patch, JSON merge patch and strategic merge patch.

None of them changes its input: untouched parts of the result are shared with the old object, so patching one
annotation of a big pod costs nothing for its spec. Strategic merge follows the patch tags of the Kubernetes types:
lists of objects merge by a key that depends on where they stand, everything else is replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from muster.simulator.errors import ApiError, bad_request

JsonObject = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# Lists of objects with patchStrategy=merge in the Kubernetes types, by field name. `tolerations` and a node's `taints`
# are absent on purpose: they are atomic, a patch replaces them whole.
_MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "podIPs": "ip",
    "hostIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "webhooks": "name",
    "ports": "containerPort",
}
_PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})
_SET_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVE = "$deleteFromPrimitiveList/"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes a key, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def _rejected(problem: str) -> ApiError:
    return ApiError(
        422,
        "Invalid",
        message="the server rejected our request due to an error in our request",
        details={"causes": [{"reason": "UnexpectedServerResponse", "message": problem}]},
    )


def _pointer(path: object) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise _rejected(f"path: {path!r} must be a JSON pointer such as /metadata/labels")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _index(step: str, container: Sequence[Any], *, path: object) -> int:
    if not step.isdigit() or int(step) >= len(container):
        raise _rejected(f"path: {path!r} does not exist (index {step!r} of {len(container)})")
    return int(step)


def _look_up(document: Any, steps: Sequence[str], *, path: object) -> Any:
    for step in steps:
        if isinstance(document, dict):
            if step not in document:
                raise _rejected(f"path: {path!r} does not exist (missing {step!r})")
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, document, path=path)]
        else:
            raise _rejected(f"path: {path!r} does not exist ({step!r} is inside a plain value)")
    return document


def _add(document: Any, steps: Sequence[str], value: Any, *, path: object) -> Any:
    if not steps:
        return value
    parent = _look_up(document, steps[:-1], path=path)
    if isinstance(parent, dict):
        parent[steps[-1]] = value
    elif isinstance(parent, list):
        if steps[-1] == "-" or steps[-1] == str(len(parent)):
            parent.append(value)
        else:
            parent.insert(_index(steps[-1], parent, path=path), value)
    else:
        raise _rejected(f"path: {path!r} does not exist (its parent is a plain value)")
    return document


def _remove(document: Any, steps: Sequence[str], *, path: object) -> Any:
    value = _look_up(document, steps, path=path)
    if not steps:
        raise _rejected("path: the whole document cannot be removed")
    parent = _look_up(document, steps[:-1], path=path)
    if isinstance(parent, dict):
        del parent[steps[-1]]
    else:
        del parent[int(steps[-1])]
    return value


def json_patch(target: JsonObject, operations: Any) -> Any:
    """RFC 6902, with `test`; 422 when an operation cannot be done, and then nothing is."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    document: Any = orjson.loads(orjson.dumps(target))
    for operation in operations:
        path = operation.get("path")
        steps = _pointer(path)
        match operation.get("op"):
            case "add":
                document = _add(document, steps, operation.get("value"), path=path)
            case "replace":
                _look_up(document, steps, path=path)
                if steps:
                    parent = _look_up(document, steps[:-1], path=path)
                    parent[int(steps[-1]) if isinstance(parent, list) else steps[-1]] = operation.get("value")
                else:
                    document = operation.get("value")
            case "remove":
                _remove(document, steps, path=path)
            case "test":
                found = _look_up(document, steps, path=path)
                if found != operation.get("value"):
                    raise _rejected(f"testing value {path} failed: test failed")
            case "copy":
                found = _look_up(document, _pointer(operation.get("from")), path=operation.get("from"))
                document = _add(document, steps, orjson.loads(orjson.dumps(found)), path=path)
            case "move":
                found = _remove(document, _pointer(operation.get("from")), path=operation.get("from"))
                document = _add(document, steps, found, path=path)
            case unknown:
                raise _rejected(f"op: {unknown!r} must be add, remove, replace, move, copy or test")
    return document


def _merge_key(field: str, elements: Sequence[Any]) -> str | None:
    key = _MERGE_KEYS.get(field)
    if field == "ports" and any(isinstance(element, dict) and "containerPort" not in element for element in elements):
        return "port"  # a Service's ports
    return key


def strategic_merge(target: Any, patch: Any) -> Any:
    """Merge a strategic patch into an object of a built-in type."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    retained = patch.get("$retainKeys")
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVE):
            field = key.removeprefix(_DELETE_PRIMITIVE)
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_merge(result.get(key), value)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key), value, order=patch.get(_SET_ORDER + key))
        else:
            result[key] = value
    for key, order in patch.items():
        field = key.removeprefix(_SET_ORDER)
        if key.startswith(_SET_ORDER) and field not in patch and isinstance(result.get(field), list):
            result[field] = _merge_list(field, result[field], [], order=order)
    return {key: value for key, value in result.items() if not (key.startswith("$"))}


def _merge_list(field: str, live: Any, patch: list[Any], *, order: list[Any] | None) -> list[Any]:
    elements: list[Any] = list(live) if isinstance(live, list) else []
    if field in _PRIMITIVE_SETS:
        merged = elements + [item for item in patch if item not in elements]
        return _ordered(merged, elements, order, identity=lambda item: item)
    key = _merge_key(field, patch or elements)
    if key is None or not all(isinstance(element, dict) for element in [*elements, *patch]):
        return patch
    if any(element.get("$patch") == "replace" for element in patch):
        return [element for element in patch if "$patch" not in element]
    merged = list(elements)
    for element in patch:
        if key not in element:
            raise bad_request(f"map: map[] does not contain declared merge key: {key}")
        found = next((index for index, old in enumerate(merged) if old.get(key) == element[key]), None)
        if element.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != element[key]]
        elif found is None:
            merged.append(strategic_merge({}, element))
        else:
            merged[found] = strategic_merge(merged[found], element)
    return _ordered(merged, elements, order, identity=lambda item: item.get(key) if isinstance(item, dict) else item)


def _ordered(
    merged: list[Any], live: list[Any], order: list[Any] | None, *, identity: Callable[[Any], Any]
) -> list[Any]:
    """Put named elements into the wished order; those the patch does not name keep their place among the live ones."""
    if order is None:
        return merged
    wished = [identity(item) for item in order]
    position = {identity(item): index for index, item in enumerate(live)}
    named = sorted((item for item in merged if identity(item) in wished), key=lambda item: wished.index(identity(item)))
    others = [item for item in merged if identity(item) not in wished]
    result: list[Any] = []
    while named and others:
        left = position.get(identity(named[0]))
        if left is not None and position.get(identity(others[0]), len(live)) < left:
            result.append(others.pop(0))
        else:
            result.append(named.pop(0))
    return result + named + others
