"""OpenAPI documents: one v3 document per group version, enough for kubectl to validate, explain and apply.

A client learns from the PATCH operation of a kind that the server checks fields itself (fieldValidation) and knows
dryRun; the schemas are those of the CRDs and the compact ones of built-in kinds. OpenAPI v2 is an empty document.
"""

from typing import Any

from muster.simulator.core_schema import open_api_schemas
from muster.simulator.discovery import SERVER_VERSION, group_versions, types_of
from muster.simulator.errors import JsonObject, no_such_path
from muster.simulator.resources import Registry, ResourceType

PROTOBUF_V2_ACCEPT = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
PROTOBUF_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # "@" is no legal media type
_INFO = {"title": "Kubernetes (simulated)", "version": SERVER_VERSION["gitVersion"]}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def _prefix(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(registry: Registry) -> JsonObject:
    """GET /openapi/v3: where the document of each group version is; the hash changes when a CRD does."""
    return {
        "paths": {
            _prefix(group, version): {
                "serverRelativeURL": f"/openapi/v3/{_prefix(group, version)}?hash={registry.revision}"
            }
            for group, version in group_versions(registry)
        }
    }


def _schema_name(resource_type: ResourceType, version: str) -> str:
    reverse = ".".join(reversed(resource_type.group.split(".")))
    return f"{reverse}.{version}.{resource_type.kind}"


def _schemas(resource_type: ResourceType, version: str) -> dict[str, JsonObject]:
    kind = {"group": resource_type.group, "version": version, "kind": resource_type.kind}
    if not resource_type.custom:
        found = open_api_schemas(resource_type.key)
        if found is None:
            return {
                resource_type.kind: {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "x-kubernetes-group-version-kind": [kind],
                }
            }
        root, schemas = found
        return {**schemas, root: {**schemas[root], "x-kubernetes-group-version-kind": [kind]}}
    served = resource_type.version(version)
    schema: dict[str, Any] = dict(served.schema or {}) if served is not None else {}
    properties = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    return {
        _schema_name(resource_type, version): {
            **schema,
            "type": "object",
            "properties": properties,
            "x-kubernetes-group-version-kind": [kind],
        }
    }


def document(registry: Registry, group: str, version: str) -> JsonObject:
    """GET /openapi/v3/…: paths and schemas of one group version; 404 when it is not served."""
    types = types_of(registry, group, version)
    if not types:
        raise no_such_path()
    paths: JsonObject = {}
    schemas: JsonObject = {}
    for resource_type in types:
        place = "namespaces/{namespace}/" if resource_type.namespaced else ""
        kind = {"group": group, "version": version, "kind": resource_type.kind}
        collection = f"/{_prefix(group, version)}/{place}{resource_type.plural}"
        operation = {"x-kubernetes-group-version-kind": kind, "parameters": _PARAMETERS, "responses": {}}
        paths[collection] = {"post": {**operation, "x-kubernetes-action": "post"}}
        paths[collection + "/{name}"] = {
            "patch": {**operation, "x-kubernetes-action": "patch"},
            "put": {**operation, "x-kubernetes-action": "put"},
        }
        schemas.update(_schemas(resource_type, version))
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def document_v2() -> JsonObject:
    """GET /openapi/v2 as JSON."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


def document_v2_protobuf() -> bytes:
    """GET /openapi/v2 as protobuf: field 1 is the swagger version, field 2 the info with title and version."""

    def text(number: int, value: bytes) -> bytes:
        return bytes((number << 3 | 2, len(value))) + value

    info = text(1, _INFO["title"].encode()) + text(2, _INFO["version"].encode())
    return text(1, b"2.0") + text(2, info)
