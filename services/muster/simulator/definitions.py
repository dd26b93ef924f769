"""CustomResourceDefinitions: from the CRD object to a served ResourceType, and the status that says it is served."""

from typing import Any

from muster.simulator.clock import timestamp
from muster.simulator.errors import FieldError, JsonObject, invalid, invalid_value, required
from muster.simulator.resources import PrinterColumn, ResourceType, ScalePaths, ServedVersion

CRD_KEY = "customresourcedefinitions.apiextensions.k8s.io"


def check_definition(crd: JsonObject) -> None:
    """422 when a CRD cannot be served: name, versions, scope, schema."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    name = crd["metadata"]["name"]
    errors: list[FieldError] = []
    for field, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.scope", spec.get("scope")),
        ("spec.versions", spec.get("versions")),
    ):
        if not value:
            errors.append(required(field))
    if not errors:
        expected = f"{names['plural']}.{spec['group']}"
        if name != expected:
            errors.append(invalid_value("metadata.name", name, detail='must be spec.names.plural+"."+spec.group'))
        if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
            errors.append(
                invalid_value(
                    "spec.versions",
                    len(spec["versions"]),
                    detail="must have exactly one version marked as storage version",
                )
            )
        errors.extend(
            required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")
            for index, version in enumerate(spec["versions"])
            if not (version.get("schema") or {}).get("openAPIV3Schema")
        )
    if errors:
        raise invalid("CustomResourceDefinition", name, group="apiextensions.k8s.io", errors=errors)


def complete_definition(crd: JsonObject) -> None:
    """Fill in the names and the conversion the server defaults."""
    spec = crd["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def established(crd: JsonObject, *, now: float) -> None:
    """Give a CRD the status of one that is served."""
    spec = crd["spec"]
    moment = timestamp(now)
    crd["status"] = {
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": moment,
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": moment,
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ],
        "acceptedNames": dict(spec["names"]),
        "storedVersions": [next(version["name"] for version in spec["versions"] if version.get("storage"))],
    }


def _columns(version: JsonObject) -> tuple[PrinterColumn, ...]:
    return tuple(
        PrinterColumn(
            name=column["name"],
            type=column.get("type", "string"),
            json_path=column["jsonPath"],
            priority=column.get("priority", 0),
            format=column.get("format", ""),
            description=column.get("description", ""),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )


def _scale(subresources: JsonObject) -> ScalePaths | None:
    scale: Any = subresources.get("scale")
    if not scale:
        return None
    selector = scale.get("labelSelectorPath")
    return ScalePaths(
        spec_replicas=scale["specReplicasPath"].lstrip("."),
        status_replicas=scale["statusReplicasPath"].lstrip("."),
        label_selector=selector.lstrip(".") if selector else None,
    )


def resource_type_of(crd: JsonObject) -> ResourceType:
    """The type a CRD defines; the storage version's subresources hold for all versions."""
    spec = crd["spec"]
    names = spec["names"]
    storage = next(version for version in spec["versions"] if version.get("storage"))
    served = sorted(
        (version for version in spec["versions"] if version.get("served")),
        key=lambda version: version["name"] != storage["name"],
    )
    subresources = storage.get("subresources") or {}
    return ResourceType(
        group=spec["group"],
        plural=names["plural"],
        kind=names["kind"],
        versions=tuple(
            ServedVersion(
                name=version["name"],
                schema=(version.get("schema") or {}).get("openAPIV3Schema"),
                columns=_columns(version),
            )
            for version in served
        ),
        storage_version=storage["name"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        generation=True,
        scale=_scale(subresources),
        custom=True,
    )
