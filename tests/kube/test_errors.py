import json

import pytest

from muster.kube import errors
from muster.kube.errors import error_from_reply

ASSIGNED = 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n-7"'
STALE = (
    'Operation cannot be fulfilled on pods "a": Precondition failed: '
    "ResourceVersion in precondition: 1, ResourceVersion in object meta: 2"
)
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def status(code, reason="", message="", **details):
    return json.dumps({"code": code, "reason": reason, "message": message, "details": details}).encode()


@pytest.mark.parametrize(
    ("code", "body", "kind", "fields"),
    [
        pytest.param(
            404,
            status(404, "NotFound", 'pods "a" not found', name="a", kind="pods"),
            errors.NotFound,
            {"kind_missing": False},
            id="an object that does not exist",
        ),
        pytest.param(
            404,
            status(404, "NotFound", "the server could not find the requested resource"),
            errors.NotFound,
            {"kind_missing": True},
            id="a kind that is not installed",
        ),
        pytest.param(404, b"404 page not found", errors.NotFound, {"kind_missing": True}, id="a path without a route"),
        pytest.param(
            409, status(409, "AlreadyExists", "exists"), errors.AlreadyExists, {}, id="a create of a name that exists"
        ),
        pytest.param(
            409,
            status(409, "Conflict", ASSIGNED),
            errors.Conflict,
            {"already_assigned": True, "assigned_node": "n-7", "precondition": False},
            id="a second bind names the node the pod has",
        ),
        pytest.param(
            409,
            status(409, "Conflict", STALE),
            errors.Conflict,
            {"already_assigned": False, "precondition": True},
            id="a stale version in a precondition",
        ),
        pytest.param(
            409,
            status(409, "Conflict", MODIFIED),
            errors.Conflict,
            {"precondition": True},
            id="a stale version in a patch",
        ),
        pytest.param(
            409,
            status(409, "Conflict", "pod a has non-empty .spec.schedulingGates"),
            errors.Conflict,
            {"already_assigned": False, "precondition": False},
            id="a bind of a gated pod is neither",
        ),
        pytest.param(410, status(410, "Expired", "too old"), errors.Gone, {}, id="an expired version"),
        pytest.param(
            429,
            status(429, "TooManyRequests", BUDGET, causes=[{"reason": "DisruptionBudget"}]),
            errors.TooManyRequests,
            {"disruption_budget": True, "retry_after": 7.0},
            id="an eviction under a budget",
        ),
        pytest.param(
            429,
            b"Too many requests, please try again later.",
            errors.TooManyRequests,
            {"disruption_budget": False, "retry_after": 7.0},
            id="priority and fairness rejects with text",
        ),
        pytest.param(
            422,
            status(
                422, "Invalid", "bad", causes=[{"field": "spec.queue", "message": "must be set", "reason": "Required"}]
            ),
            errors.Invalid,
            {"causes": (errors.StatusCause(reason="Required", message="must be set", field="spec.queue"),)},
            id="a schema refuses and names the field",
        ),
        pytest.param(400, status(400, "BadRequest", "bad"), errors.Invalid, {}, id="a bad request"),
        pytest.param(403, status(403, "Forbidden", "no"), errors.Forbidden, {}, id="a missing right"),
        pytest.param(401, status(401, "Unauthorized", "no"), errors.Unauthorized, {}, id="a bad token"),
        pytest.param(
            500,
            b"panic: runtime error",
            errors.Unavailable,
            {"unknown_outcome": True, "cause": "status"},
            id="a panicking server answers text and the outcome is unknown",
        ),
        pytest.param(
            504,
            status(504, "Timeout", "timeout"),
            errors.Unavailable,
            {"unknown_outcome": True, "retry_after": 7.0},
            id="a timeout inside the server",
        ),
        pytest.param(
            302, b"", errors.UnexpectedReply, {"unknown_outcome": True}, id="a redirect is no Kubernetes answer"
        ),
    ],
)
def test_every_answer_becomes_the_error_that_a_caller_can_decide_by(code, body, kind, fields):
    headers = {"Retry-After": "7"}
    error = error_from_reply(code, body, headers, request="POST /x")
    assert type(error) is kind
    assert error.status == code
    assert str(error).startswith("POST /x: ")
    for name, value in fields.items():
        assert getattr(error, name) == value


def test_retry_after_is_read_from_the_details_when_there_is_no_header():
    error = error_from_reply(429, status(429, "TooManyRequests", "x", retryAfterSeconds=3), {}, request="GET /x")
    assert error.retry_after == 3.0


def test_a_retry_after_that_is_a_date_counts_as_absent():
    error = error_from_reply(503, b"", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, request="GET /x")
    assert error.retry_after is None


def test_long_texts_are_cut_in_messages():
    error = error_from_reply(500, b"x" * 100_000, {}, request="GET /x")
    assert len(str(error)) < 600
