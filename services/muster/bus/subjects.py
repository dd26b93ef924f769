"""Subjects, and the escaping that makes any object name one legal token.

    muster.<stream part>.<kind or verb or tenant>.<key>

A token keeps ASCII letters, digits, ``-``, ``_`` and ``/``; every other byte of the UTF-8 text is written ``=XX`` in upper-case
hexadecimal, and the empty text is a lone ``=``. So ``team-a/llm-7f3c`` stays as it is, ``node-1.example`` becomes
``node-1=2Eexample``, and the result is legal in subjects and in keys of key-value buckets alike.
"""

import hashlib
import re
from urllib.parse import unquote_to_bytes

PREFIX = "muster"
EMPTY = "="
PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/")
TOKEN = re.compile(r"=|(?:[A-Za-z0-9_/-]|=[0-9A-F]{2})+")
LONGEST_NAME = 200
"""Consumer names become file names on the server; longer ones are replaced by a hash."""

STATE_ALL = f"{PREFIX}.state.>"
LEDGER_ALL = f"{PREFIX}.ledger.>"
JOBS_SUBMIT_ALL = f"{PREFIX}.jobs.submit.*"
JOBS_CANCEL_ALL = f"{PREFIX}.jobs.cancel.*"
PROGRESS_ALL = f"{PREFIX}.jobs.progress.*.*"
DECISION_ALL = f"{PREFIX}.decision.>"
USAGE_ALL = f"{PREFIX}.usage.*"
STATUS_ALL = f"{PREFIX}.status.*.*"
DLQ_ALL = f"{PREFIX}.dlq.>"
WATCHER_KEY = "watcher"
"""Key of the clock message in STATE."""
STATE_EPOCHS = f"{PREFIX}.state.epoch.*"
"""Epochs, each under its number: a later reader must see all that tell which messages are stray."""


class SubjectError(ValueError):
    """A token or subject that Muster did not make; the message names it."""


def escape_token(text: str) -> str:
    """One legal subject token for any text; `unescape_token` gives the text back."""
    if not text:
        return EMPTY
    return "".join(chr(byte) if byte in PLAIN else f"={byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def unescape_token(token: str) -> str:
    """The text that `escape_token` was given.

    Raises:
        SubjectError: the token was not made by `escape_token`.
    """
    if token == EMPTY:
        return ""
    if TOKEN.fullmatch(token) is None:
        raise SubjectError(f"{token!r} is not an escaped token")
    try:
        text = unquote_to_bytes(token.replace("=", "%")).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise SubjectError(f"{token!r} is not the escape of any text") from error
    if escape_token(text) != token:
        raise SubjectError(f"{token!r} is not how {text!r} is escaped: {escape_token(text)!r}")
    return text


def split_subject(subject: str) -> tuple[str, ...]:
    """The unescaped tokens after ``muster.``: ``muster.state.pod.ns/a`` → ``("state", "pod", "ns/a")``.

    Raises:
        SubjectError: the subject does not start with ``muster.`` or holds a token that is not escaped.
    """
    first, *rest = subject.split(".")
    if first != PREFIX or not rest:
        raise SubjectError(f"{subject!r} is no subject of Muster: it does not start with {PREFIX!r}")
    return tuple(unescape_token(token) for token in rest)


def state_subject(kind: str, key: str) -> str:
    """Where STATE keeps the object ``key`` of this kind."""
    return f"{PREFIX}.state.{escape_token(kind)}.{escape_token(key)}"


def ledger_subject(verb: str, key: str) -> str:
    """Where LEDGER files a commit."""
    return f"{PREFIX}.ledger.{escape_token(verb)}.{escape_token(key)}"


def jobs_submit(tenant: str) -> str:
    """Where a tenant submits jobs."""
    return f"{PREFIX}.jobs.submit.{escape_token(tenant)}"


def jobs_cancel(tenant: str) -> str:
    """Where a tenant cancels submissions."""
    return f"{PREFIX}.jobs.cancel.{escape_token(tenant)}"


def jobs_progress(tenant: str, job: str) -> str:
    """Where a job (``namespace/name``) reports its step and last checkpoint."""
    return f"{PREFIX}.jobs.progress.{escape_token(tenant)}.{escape_token(job)}"


def status_subject(tenant: str, job: str) -> str:
    """Where the status of a submission is told; ``job`` is the submission id ("*" cannot be an id: see `status_filter`)."""
    return f"{PREFIX}.status.{escape_token(tenant)}.{escape_token(job)}"


def status_filter(tenant: str) -> str:
    """Every status message of a tenant."""
    return f"{PREFIX}.status.{escape_token(tenant)}.*"


def decision_subject(verb: str, key: str) -> str:
    """Where a decision about a gang or node is told."""
    return f"{PREFIX}.decision.{escape_token(verb)}.{escape_token(key)}"


def usage_subject(queue: str) -> str:
    """Where the usage of a queue is told."""
    return f"{PREFIX}.usage.{escape_token(queue)}"


def dlq_subject(origin: str) -> str:
    """Where a message that could not be handled goes, by the subject it came from: the origin's tokens follow."""
    return f"{PREFIX}.dlq.{origin.removeprefix(PREFIX + '.')}"


def api_subject(tenant: str, verb: str) -> str:
    """Where a tenant asks a question (``explain``, ``gangs``, ``nodes``, ``queues``, ``submission``)."""
    return f"{PREFIX}.api.{escape_token(tenant)}.{escape_token(verb)}"


def api_filter(verb: str) -> str:
    """One verb of the questions, all tenants."""
    return f"{PREFIX}.api.*.{escape_token(verb)}"


def propose_subject(verb: str) -> str:
    """Where a service proposes something to the committer."""
    return f"{PREFIX}.propose.{escape_token(verb)}"


def submission_key(tenant: str, submission_id: str) -> str:
    """Key of a submission in the SUBMISSIONS bucket: ``<tenant>.<id>``."""
    return f"{escape_token(tenant)}.{escape_token(submission_id)}"


def consumer_name(prefix: str, text: str) -> str:
    """A legal consumer name, one for each text: consumer names may hold neither ``/`` nor dots."""
    name = f"{prefix}-{escape_token(text).replace('/', '=2F')}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{prefix}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
