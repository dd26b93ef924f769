"""Discovery: which groups, versions and resources there are, in the plain and in the aggregated form.

Both forms are computed from the registry, so a CRD appears the moment it is created.
"""

from collections.abc import Iterable
from typing import Any

from muster.simulator.errors import JsonObject, no_such_path
from muster.simulator.resources import Registry, ResourceType

AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SERVER_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "simulated",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_WRITE_VERBS = ["get", "patch", "update"]


def _verbs(resource_type: ResourceType) -> list[str]:
    return ["create"] if resource_type.key == "bindings" or resource_type.group == "authorization.k8s.io" else _VERBS


def _subresources(resource_type: ResourceType, version: str) -> Iterable[tuple[str, JsonObject, list[str]]]:
    """Name, kind and verbs of each subresource."""
    own = {"group": resource_type.group, "version": version, "kind": resource_type.kind}
    if resource_type.status:
        yield "status", own, _WRITE_VERBS
    if resource_type.scale is not None:
        yield "scale", {"group": "autoscaling", "version": "v1", "kind": "Scale"}, _WRITE_VERBS
    kinds = {
        "binding": {"group": "", "version": "v1", "kind": "Binding"},
        "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    }
    for name in resource_type.subresources:
        yield name, kinds.get(name, own), ["create"] if name in kinds else ["update"]


def _group_versions(registry: Registry) -> dict[str, dict[str, list[ResourceType]]]:
    """Group → version → types, groups in order of registration, the preferred version first."""
    found: dict[str, dict[str, list[ResourceType]]] = {}
    for resource_type in registry:
        versions = found.setdefault(resource_type.group, {})
        for version in resource_type.versions:
            versions.setdefault(version.name, []).append(resource_type)
    return found


def group_versions(registry: Registry) -> list[tuple[str, str]]:
    """Every served (group, version)."""
    return [(group, version) for group, versions in _group_versions(registry).items() for version in versions]


def types_of(registry: Registry, group: str, version: str) -> list[ResourceType]:
    """The types served under one group version."""
    return _group_versions(registry).get(group, {}).get(version, [])


def _group(name: str, versions: Iterable[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}


def api_versions() -> JsonObject:
    """GET /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }


def api_groups(registry: Registry) -> JsonObject:
    """GET /apis."""
    groups = [_group(name, versions) for name, versions in _group_versions(registry).items() if name]
    for group in groups:
        del group["kind"], group["apiVersion"]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(registry: Registry, name: str) -> JsonObject:
    """GET /apis/GROUP; 404 when the group is not served."""
    versions = _group_versions(registry).get(name)
    if not name or versions is None:
        raise no_such_path()
    return _group(name, versions)


def api_resources(registry: Registry, group: str, version: str) -> JsonObject:
    """GET /api/v1 and /apis/GROUP/VERSION; 404 when it is not served."""
    types = types_of(registry, group, version)
    if not types:
        raise no_such_path()
    resources: list[JsonObject] = []
    for resource_type in types:
        entry: JsonObject = {
            "name": resource_type.plural,
            "singularName": resource_type.singular,
            "namespaced": resource_type.namespaced,
            "kind": resource_type.kind,
            "verbs": _verbs(resource_type),
        }
        if resource_type.short_names:
            entry["shortNames"] = list(resource_type.short_names)
        if resource_type.categories:
            entry["categories"] = list(resource_type.categories)
        resources.append(entry)
        for name, kind, verbs in _subresources(resource_type, version):
            resources.append(
                {
                    "name": f"{resource_type.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource_type.namespaced,
                    **(
                        {"group": kind["group"], "version": kind["version"]}
                        if kind["kind"] != resource_type.kind
                        else {}
                    ),
                    "kind": kind["kind"],
                    "verbs": verbs,
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _aggregated_resource(resource_type: ResourceType, version: str) -> JsonObject:
    entry: JsonObject = {
        "resource": resource_type.plural,
        "responseKind": {"group": resource_type.group, "version": version, "kind": resource_type.kind},
        "scope": "Namespaced" if resource_type.namespaced else "Cluster",
        "singularResource": resource_type.singular,
        "verbs": _verbs(resource_type),
    }
    if resource_type.short_names:
        entry["shortNames"] = list(resource_type.short_names)
    if resource_type.categories:
        entry["categories"] = list(resource_type.categories)
    subresources = [
        {"subresource": name, "responseKind": kind, "verbs": verbs}
        for name, kind, verbs in _subresources(resource_type, version)
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


def aggregated(registry: Registry, *, core: bool) -> JsonObject:
    """GET /api (core) or /apis in the aggregated form."""
    items: list[Any] = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated_resource(resource_type, version) for resource_type in types],
                    "freshness": "Current",
                }
                for version, types in versions.items()
            ],
        }
        for group, versions in _group_versions(registry).items()
        if bool(group) != core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
