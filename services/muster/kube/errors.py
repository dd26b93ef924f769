"""What can go wrong with a request, as types: a caller decides by class and field, never by text or status number.

Three questions matter to a caller: was the write perhaps carried out (`Unavailable.unknown_outcome`), does the object
differ from what was read (`Conflict.precondition`), and when may it be tried again (`retry_after`, seconds).
"""

import re
from collections.abc import Mapping

import msgspec

_ASSIGNED = re.compile(r"already assigned to node \"?([^\"\s]+)\"?")
_MAXIMUM_MESSAGE = 500


class StatusCause(msgspec.Struct, frozen=True):
    """One cause of a refused request: the field, a machine-readable reason and a sentence."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """A metav1.Status, as far as it is used."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The causes; empty when the server gave none."""
        return (self.details.causes or ()) if self.details else ()


_status_decoder = msgspec.json.Decoder(Status)


class KubeError(Exception):
    """A request that did not succeed. `status` is the HTTP status, or None when no answer came."""

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class NotFound(KubeError):  # noqa: N818  # the API's own word
    """404: the object, or the whole kind (`kind_missing`), does not exist."""

    def __init__(self, message: str, *, status: int | None = 404, reason: str = "", kind_missing: bool = False) -> None:
        super().__init__(message, status=status, reason=reason)
        self.kind_missing = kind_missing


class AlreadyExists(KubeError):  # noqa: N818  # the API's own word
    """409 of a create: an object of that name exists."""


class Conflict(KubeError):  # noqa: N818  # the API's own word
    """409: the object is not what the request assumed.

    `precondition`: a uid or resourceVersion differed. `assigned_node`: the node a pod to be bound has already.
    """

    def __init__(
        self, message: str, *, reason: str = "", precondition: bool = False, assigned_node: str | None = None
    ) -> None:
        super().__init__(message, status=409, reason=reason)
        self.precondition = precondition
        self.assigned_node = assigned_node

    @property
    def already_assigned(self) -> bool:
        """Whether the pod has a node already."""
        return self.assigned_node is not None


class Gone(KubeError):  # noqa: N818  # the API's own word
    """410: the resourceVersion or continue token has expired. List again."""


class TooManyRequests(KubeError):  # noqa: N818  # the API's own word
    """429: not carried out. `disruption_budget`: it was an eviction that a PodDisruptionBudget forbids for now."""

    def __init__(
        self, message: str, *, reason: str = "", retry_after: float | None = None, disruption_budget: bool = False
    ) -> None:
        super().__init__(message, status=429, reason=reason)
        self.retry_after = retry_after
        self.disruption_budget = disruption_budget


class Invalid(KubeError):  # noqa: N818  # the API's own word
    """400 or 422: the request can never succeed as it is. `causes` name the fields."""

    def __init__(self, message: str, *, status: int, reason: str = "", causes: tuple[StatusCause, ...] = ()) -> None:
        super().__init__(message, status=status, reason=reason)
        self.causes = causes


class Forbidden(KubeError):  # noqa: N818  # the API's own word
    """403: the service account lacks the right, or an admission rule refused."""


class Unauthorized(KubeError):  # noqa: N818  # the API's own word
    """401, again after the credentials were read anew."""


class Unavailable(KubeError):  # noqa: N818  # says it all
    """No answer, or a 5xx. With `unknown_outcome` the write may have been carried out or may yet be: read first.

    `cause` is refused (never sent), timeout, reset or status.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: str,
        unknown_outcome: bool,
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.cause = cause
        self.unknown_outcome = unknown_outcome
        self.retry_after = retry_after


class UnexpectedReply(KubeError):  # noqa: N818  # not a request's error but an answer's
    """An answer that the Kubernetes API does not give: a redirect, a body that is no JSON. The outcome is unknown."""

    unknown_outcome = True


def error_from_reply(status: int, body: bytes, headers: Mapping[str, str], *, request: str) -> KubeError:
    """The typed error of an HTTP answer. `request` is put before the server's words, as in ``POST /api/v1/…``.

    Bodies that are no Status (proxies and panicking servers send text) are quoted as they are.
    """
    try:
        parsed = _status_decoder.decode(body)
    except msgspec.DecodeError:
        parsed = Status(message=body[:_MAXIMUM_MESSAGE].decode("utf-8", "replace").strip())
    retry_after = _seconds(headers.get("Retry-After"))
    return _typed(status, parsed, request=request, retry_after=retry_after)


def error_from_status(status: Status, *, request: str) -> KubeError:
    """The typed error of a Status that came inside a watch stream."""
    return _typed(status.code or 500, status, request=request, retry_after=None)


def _typed(code: int, status: Status, *, request: str, retry_after: float | None) -> KubeError:
    said = status.message or status.reason or "no message"
    message = f"{request}: {code} {said}"
    reason = status.reason
    if retry_after is None and status.details is not None and status.details.retry_after_seconds:
        retry_after = float(status.details.retry_after_seconds)
    if code == 401:
        return Unauthorized(message, status=code, reason=reason)
    if code == 403:
        return Forbidden(message, status=code, reason=reason)
    if code == 404:
        named = status.details is not None and bool(status.details.name)
        return NotFound(message, reason=reason, kind_missing=not named)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(message, status=code, reason=reason)
    if code == 409:
        assigned = _ASSIGNED.search(said)
        stale = "precondition" in said.lower() or "has been modified" in said
        return Conflict(
            message,
            reason=reason,
            precondition=stale,
            assigned_node=assigned.group(1) if assigned is not None else None,
        )
    if code == 410:
        return Gone(message, status=code, reason=reason)
    if code == 429:
        budget = "disruption budget" in said or any(cause.reason == "DisruptionBudget" for cause in status.causes)
        return TooManyRequests(message, reason=reason, retry_after=retry_after, disruption_budget=budget)
    if code in {400, 422}:
        return Invalid(message, status=code, reason=reason, causes=status.causes)
    if code >= 500:
        return Unavailable(
            message, cause="status", unknown_outcome=True, status=code, reason=reason, retry_after=retry_after
        )
    return UnexpectedReply(message, status=code, reason=reason)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; the HTTP-date form is not used by API servers and counts as absent."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        return None
