"""From the stored object and a request to the next state, as pure functions.

    PATCH   apply_patch: the content type decides how the body is laid over the object
    any     check_preconditions, check_version: is it the object the caller means, as the caller saw it
    PUT     next_state: what this subresource may change, over what it may not

The results share unchanged parts with the old object; their metadata is always a fresh dict.
"""

from collections.abc import Mapping
from typing import Any

from muster.simulator.errors import (
    STALE,
    ApiError,
    JsonObject,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    invalid_value,
    unsupported_media_type,
)
from muster.simulator.patching import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    json_patch,
    merge_patch,
    strategic_merge,
)
from muster.simulator.resources import ResourceType
from muster.simulator.scaling import with_scale
from muster.simulator.watching import Record

KEPT_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def check_patch_type(resource_type: ResourceType, content_type: str) -> None:
    """415 for a patch format that the resource does not take."""
    if content_type == APPLY_PATCH:
        raise unsupported_media_type(
            "application/apply-patch+yaml: server-side apply is not served by the simulated API server; use client-side "
            "apply (kubectl apply without --server-side) or a merge patch"
        )
    accepted = [JSON_PATCH, MERGE_PATCH] if resource_type.custom else [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH]
    if content_type in accepted:
        return
    if not resource_type.custom:
        raise unsupported_media_type(f"415: Unsupported Media Type: {content_type} is no patch type")
    raise unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    )


def apply_patch(current: JsonObject, body: Any, *, content_type: str) -> JsonObject:
    """The patched object, for a content type already checked; 400 when the result is no object."""
    if content_type == JSON_PATCH:
        patched = json_patch(current, body)
    elif content_type == STRATEGIC_MERGE_PATCH:
        patched = strategic_merge(current, body)
    else:
        patched = merge_patch(current, body)
    if not isinstance(patched, dict):
        raise bad_request("the patch does not leave an object")
    return patched


def check_preconditions(resource_type: ResourceType, old: Record, preconditions: Mapping[str, str] | None) -> None:
    """409 when the object is not the one the caller means (uid) or not as the caller saw it (resourceVersion)."""
    metadata = old.obj["metadata"]
    for field, label, cause in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        wanted = (preconditions or {}).get(field)
        if wanted and wanted != metadata[field]:
            raise conflict(
                resource_type.plural,
                metadata["name"],
                group=resource_type.group,
                message=f"the {label} in the precondition ({wanted}) does not match the {label} in record ({metadata[field]}). "
                f"The object might have been {cause}",
            )


def check_version(resource_type: ResourceType, wanted: Mapping[str, Any], old: JsonObject) -> None:
    """409 when a written object's metadata names another uid or resourceVersion than the stored one."""
    metadata = old["metadata"]
    uid = wanted.get("uid")
    if uid and uid != metadata["uid"]:
        raise conflict(
            resource_type.plural,
            metadata["name"],
            group=resource_type.group,
            message=f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}",
        )
    version = wanted.get("resourceVersion")
    if version and version != "0" and version != metadata["resourceVersion"]:
        raise conflict(resource_type.plural, metadata["name"], group=resource_type.group, message=STALE)


def next_state(resource_type: ResourceType, obj: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
    """What the write may change, laid over what it may not; the result and its metadata are fresh dicts."""
    old_metadata = old["metadata"]
    if subresource == "scale":
        return with_scale(resource_type, old, obj)
    if subresource in {"status", "finalize"} and resource_type.custom:
        metadata = dict(old_metadata)
    else:
        metadata = dict(obj["metadata"])
        for field in KEPT_BY_SERVER:
            if field in old_metadata:
                metadata[field] = old_metadata[field]
            else:
                metadata.pop(field, None)
        metadata.pop("managedFields", None)
        metadata.pop("selfLink", None)
    metadata["resourceVersion"] = old_metadata["resourceVersion"]
    if subresource == "status":
        new = {**old, "metadata": metadata}
        if "status" in obj:
            new["status"] = obj["status"]
        else:
            new.pop("status", None)
    elif subresource == "finalize":
        new = {**old, "metadata": metadata}
        new["spec"] = {**(old.get("spec") or {}), "finalizers": (obj.get("spec") or {}).get("finalizers") or []}
    else:
        new = {**obj, "metadata": metadata}
        if resource_type.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
    return new


def check_finalizers(resource_type: ResourceType, new: JsonObject, old: JsonObject) -> None:
    """422 when a finalizer is added to an object that is being deleted."""
    if "deletionTimestamp" not in old["metadata"]:
        return
    before = set(old["metadata"].get("finalizers") or [])
    added = sorted(set(new["metadata"].get("finalizers") or []) - before)
    if added:
        raise invalid(
            resource_type.kind,
            old["metadata"]["name"],
            group=resource_type.group,
            errors=[
                forbidden_field(
                    "metadata.finalizers",
                    f"no new finalizers can be added if the object is being deleted, found new finalizers {added}",
                )
            ],
        )


def is_new_generation(resource_type: ResourceType, new: JsonObject, old: JsonObject) -> bool:
    """Whether a change is one of the desired state, which metadata.generation counts."""
    ignored = {"metadata", "status"} if resource_type.status or not resource_type.custom else {"metadata"}
    return any(new.get(key) != old.get(key) for key in {*new, *old} - ignored)


def unconditional_update_error(resource_type: ResourceType, name: str) -> ApiError:
    """422 for a PUT without resourceVersion where the real server insists on one."""
    return invalid(
        resource_type.kind,
        name,
        group=resource_type.group,
        errors=[invalid_value("metadata.resourceVersion", 0, detail="must be specified for an update")],
    )
