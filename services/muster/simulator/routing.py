"""From an HTTP request to what it asks of the API: which resource, which object, which verb, under which options.

/api/v1/namespaces/default/pods/web/binding?dryRun=All   →  Target(pods, v1, default, web, binding) + Options
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.simulator.errors import ApiError, bad_request, forbidden_field, invalid, no_such_path, unsupported_value
from muster.simulator.resources import Registry, ResourceType
from muster.simulator.selectors import Predicate, both, field_predicate, label_predicate, parse_fields

_TRUE = frozenset({"true", "True", "TRUE", "1", "t", "T"})
_FALSE = frozenset({"false", "False", "FALSE", "0", "f", "F", ""})
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a resource in a version, maybe a namespace, an object, a subresource."""

    resource_type: ResourceType
    version: str
    namespace: str | None
    name: str | None
    subresource: str | None

    @property
    def label(self) -> str:
        """The resource as RBAC names it, e.g. pods/binding."""
        key = self.resource_type.key
        return f"{key}/{self.subresource}" if self.subresource else key

    @property
    def api_version(self) -> str:
        """The apiVersion of the objects the client sees."""
        return self.resource_type.api_version_of(self.version)


def parse_target(path: str, registry: Registry) -> Target:
    """The target of a resource path; 404 when nothing is served there."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or "" in rest:
        raise no_such_path()
    resource_type = registry.find(group, version, rest[0])
    if resource_type is None:
        raise no_such_path()
    if resource_type.namespaced != (namespace is not None) and (len(rest) > 1 or not resource_type.namespaced):
        raise no_such_path()
    return Target(
        resource_type=resource_type,
        version=version,
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else None,
        subresource=rest[2] if len(rest) > 2 else None,
    )


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """The RBAC verb of a request; 405 when the method means nothing there."""
    verbs = _COLLECTION_VERBS if target.name is None else _OBJECT_VERBS
    verb = verbs.get(method)
    if verb is None or (method == "POST" and target.name is not None and target.subresource is None):
        raise ApiError(
            405, "MethodNotAllowed", message="the server does not allow this method on the requested resource"
        )
    if verb == "list" and truth(query, "watch"):
        return "watch"
    return verb


def truth(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter in any spelling clients use (true, True, 1); 400 for other text."""
    text = query.get(name)
    if text is None or text in _FALSE:
        return False
    if text in _TRUE:
        return True
    raise bad_request(f"{name}: {text!r} must be true or false")


def whole(query: Mapping[str, str], name: str) -> int | None:
    """A whole-number parameter; None when it is absent; 400 when it is not a number of at least 0."""
    text = query.get(name)
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(f"{name}: {text!r} must be a whole number of at least 0")
    return int(text)


def is_dry_run(query: Mapping[str, str]) -> bool:
    """Whether dryRun=All is set; 422 for any other value."""
    value = query.get("dryRun")
    if not value:
        return False
    if value != "All":
        raise invalid("Options", "", errors=[unsupported_value("dryRun", value, allowed=("All",))])
    return True


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The parameters of LIST, WATCH and DELETE of a collection."""

    name: str | None
    selector: Predicate | None
    version: int | None
    version_match: str
    limit: int
    continue_token: str
    timeout: float | None
    bookmarks: bool
    initial_events: bool | None


def parse_list_options(query: Mapping[str, str], target: Target) -> ListOptions:
    """Read and check the options; 400, 403 and 422 as the real server answers."""
    triples = parse_fields(query.get("fieldSelector", ""))
    key = target.resource_type.key
    name = target.name
    for path, operator, value in triples:
        if path == "metadata.name" and operator == "=":
            name = value
    resource = "events" if key == "events.events.k8s.io" else key
    if target.name is not None:
        triples = [("metadata.name", "=", target.name)]
    selector = both(label_predicate(query.get("labelSelector", "")), field_predicate(triples, resource=resource))
    version_text = query.get("resourceVersion", "")
    if version_text and not version_text.isdigit():
        raise ApiError(
            400,
            "BadRequest",
            message=f'resourceVersion: Invalid value: "{version_text}": strconv.ParseUint: parsing "{version_text}": invalid syntax',
        )
    match = query.get("resourceVersionMatch", "")
    initial_events = truth(query, "sendInitialEvents") if "sendInitialEvents" in query else None
    if match not in {"", "Exact", "NotOlderThan"}:
        raise _refused_option("resourceVersionMatch", match)
    if match and not version_text and initial_events is None:
        raise _forbidden_option(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if initial_events and match != "NotOlderThan":
        raise _forbidden_option(
            "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    return ListOptions(
        name=name,
        selector=selector,
        version=int(version_text) if version_text else None,
        version_match=match,
        limit=whole(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        timeout=whole(query, "timeoutSeconds"),
        bookmarks=truth(query, "allowWatchBookmarks"),
        initial_events=initial_events,
    )


def _forbidden_option(field: str, detail: str) -> ApiError:
    return invalid("ListOptions", "", group="meta.k8s.io", errors=[forbidden_field(field, detail)])


def _refused_option(field: str, value: str) -> ApiError:
    return invalid("ListOptions", "", errors=[unsupported_value(field, value, allowed=("Exact", "NotOlderThan"))])
