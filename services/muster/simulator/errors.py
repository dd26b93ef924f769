"""Refusals of the Kubernetes API: one exception type, one constructor for each reason a client can meet.

An ApiError becomes a metav1.Status over HTTP and travels as an exception inside the process. Messages are worded as
the real server words them, because people and tests read them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

JsonObject = dict[str, Any]


class ApiError(Exception):
    """A refused request: HTTP code, machine reason, message for people, details, seconds to wait before a retry."""

    def __init__(
        self,
        code: int,
        reason: str,
        *,
        message: str,
        details: JsonObject | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def status(self) -> JsonObject:
        """The metav1.Status that a client receives."""
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if details:
            status["details"] = details
        return status


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken field of an object: its path, the Kubernetes cause type, and what is wrong with it."""

    field: str
    cause: str
    message: str

    def text(self) -> str:
        """The cause as it appears inside the Status message."""
        return f"{self.field}: {self.message}" if self.field else self.message


def required(field: str, detail: str = "") -> FieldError:
    """A field that must be present."""
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(field: str, value: object, *, detail: str) -> FieldError:
    """A field whose value is not acceptable."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}")


def unsupported_value(field: str, value: object, *, allowed: Sequence[str]) -> FieldError:
    """A field whose value is outside a fixed set."""
    choices = ", ".join(f'"{choice}"' for choice in allowed)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {choices}"
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    """A field that may not be set or changed here."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def quoted(value: object) -> str:
    """A value as the API server prints it in field errors."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return str(value)


def qualified(plural: str, group: str) -> str:
    """`pods`, or `queues.scheduling.volcano.sh` for a named group."""
    return f"{plural}.{group}" if group else plural


def _named(name: str, group: str, kind: str) -> JsonObject:
    details: JsonObject = {"name": name}
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def not_found(plural: str, name: str, *, group: str = "") -> ApiError:
    """404 for one object."""
    return ApiError(
        404, "NotFound", message=f'{qualified(plural, group)} "{name}" not found', details=_named(name, group, plural)
    )


def no_such_path() -> ApiError:
    """404 for a resource or path that is not served."""
    return ApiError(404, "NotFound", message="the server could not find the requested resource", details={})


def already_exists(plural: str, name: str, *, group: str = "") -> ApiError:
    """409 for a create under a name in use."""
    return ApiError(
        409,
        "AlreadyExists",
        message=f'{qualified(plural, group)} "{name}" already exists',
        details=_named(name, group, plural),
    )


def conflict(plural: str, name: str, *, group: str = "", message: str) -> ApiError:
    """409 for a stale or impossible write."""
    return ApiError(
        409,
        "Conflict",
        message=f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}',
        details=_named(name, group, plural),
    )


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(kind: str, name: str, *, group: str = "", errors: Sequence[FieldError]) -> ApiError:
    """422 with one cause for each broken field."""
    texts = [error.text() for error in errors]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _named(name, group, kind)
    details["causes"] = [{"reason": error.cause, "message": error.message, "field": error.field} for error in errors]
    return ApiError(422, "Invalid", message=f'{qualified(kind, group)} "{name}" is invalid: {joined}', details=details)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message=message)


def forbidden(plural: str, name: str, *, group: str = "", message: str) -> ApiError:
    """403 by admission."""
    return ApiError(
        403,
        "Forbidden",
        message=f'{qualified(plural, group)} "{name}" is forbidden: {message}',
        details=_named(name, group, plural),
    )


def expired(message: str) -> ApiError:
    """410: the asked resourceVersion has left the event log."""
    return ApiError(410, "Expired", message=message)


def too_many_requests(
    message: str, *, retry_after: int | None = None, causes: list[JsonObject] | None = None
) -> ApiError:
    """429."""
    return ApiError(
        429, "TooManyRequests", message=message, details={"causes": causes} if causes else None, retry_after=retry_after
    )


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", message=message)


def unsupported_media_type(message: str) -> ApiError:
    """415."""
    return ApiError(415, "UnsupportedMediaType", message=message)
