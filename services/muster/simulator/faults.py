"""Faults on purpose: rules that make matching requests fail, wait or lose their connection, and watches end early.

A rule matches on verb, resource and user agent (each a shell pattern), lets some matching requests pass first (`skip`),
then applies to `count` of them (None: for ever). The first matching rule wins. Rules are set by tests on the object, or
over HTTP by POST /debug/faults.
"""

import asyncio
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from muster.simulator.errors import ApiError, JsonObject, bad_request, expired
from muster.simulator.watching import error_line

if TYPE_CHECKING:
    from muster.simulator.store import Store

ACTIONS = ("error", "reset", "delay", "lose_answer")


class ConnectionReset(Exception):  # noqa: N818 - an order to the server, not an error of its own
    """The server must drop the connection without an answer."""


@dataclass(slots=True)
class Fault:
    """One rule. `action`: error (answer `code`), reset (drop the connection), delay (wait `seconds`, then serve),
    lose_answer (serve, then drop the connection: the client does not learn that its write was done).
    """

    action: str
    verb: str = "*"
    resource: str = "*"
    user_agent: str = "*"
    code: int = 500
    message: str = "injected fault"
    retry_after: int | None = None
    seconds: float = 0.0
    skip: int = 0
    count: int | None = 1
    hits: int = 0

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"action: {self.action!r} must be one of {', '.join(ACTIONS)}")

    def matches(self, *, verb: str, resource: str, user_agent: str) -> bool:
        """Whether the rule is about such a request; counts it when it is."""
        if self.count is not None and self.hits >= self.skip + self.count:
            return False
        if not (
            fnmatchcase(verb, self.verb)
            and fnmatchcase(resource, self.resource)
            and fnmatchcase(user_agent, self.user_agent)
        ):
            return False
        self.hits += 1
        return self.hits > self.skip

    def error(self) -> ApiError:
        """The answer of an `error` rule."""
        reason = {
            409: "Conflict",
            410: "Expired",
            429: "TooManyRequests",
            500: "InternalError",
            503: "ServiceUnavailable",
            504: "Timeout",
        }.get(self.code, "InternalError")
        return ApiError(self.code, reason, message=self.message, retry_after=self.retry_after)


class Faults:
    """The rules in force, and the watches of a server that can be ended."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []
        self.http_expired = False
        self._held: set[str] = set()
        self._release = asyncio.Event()
        self._store: Store | None = None

    def attach(self, store: "Store") -> None:
        """Let the faults reach the watches of a store; the server does this."""
        self._store = store

    def cut_watches(self, resource: str | None = None) -> int:
        """End the open watches (of one resource) with a clean EOF, as for a slow client; the answer is how many."""
        return self._end_watches("cut", resource, final=b"")

    def expire_watches(self, resource: str | None = None) -> int:
        """End the open watches with an ERROR 410 and forget the log, so that no client can resume; how many."""
        if self._store is not None:
            self._store.compact(resource)
        return self._end_watches("expired", resource, final=expired_line())

    def hold_watches(self, resource: str = "*") -> None:
        """Let the open and coming watches (of one resource) say nothing until `release_watches`: a stale view."""
        self._held.add(resource)

    def release_watches(self) -> None:
        """Let all held watches go on; what they missed is sent, or they are cut when it was too much."""
        self._held.clear()
        released, self._release = self._release, asyncio.Event()
        released.set()

    async def released(self, resource: str) -> None:
        """Return when watches of the resource are not held."""
        while not self._held.isdisjoint({"*", resource}):
            await self._release.wait()

    def _end_watches(self, reason: str, resource: str | None, *, final: bytes) -> int:
        if self._store is None:
            raise RuntimeError("faults: attach a store first (a SimulatedServer does)")
        watches = self._store.open_watches(resource)
        for watch in watches:
            watch.close(reason, final=final)
        return len(watches)

    def add(self, action: str, **options: Any) -> Fault:
        """Add a rule; ValueError or TypeError name what is wrong with it."""
        rule = Fault(action, **options)
        self.rules.append(rule)
        return rule

    def clear(self) -> None:
        """Drop all rules and release held watches."""
        self.rules.clear()
        self.http_expired = False
        self.release_watches()

    def find(self, *, verb: str, resource: str, user_agent: str) -> Fault | None:
        """The first rule that applies to a request."""
        if not self.rules:
            return None
        return next(
            (rule for rule in self.rules if rule.matches(verb=verb, resource=resource, user_agent=user_agent)), None
        )

    @staticmethod
    async def apply_before(rule: Fault) -> None:
        """What a rule does before the request is served: fail it or make it wait."""
        match rule.action:
            case "error":
                raise rule.error()
            case "reset":
                raise ConnectionReset
            case "delay":
                await asyncio.sleep(rule.seconds)
            case _:
                pass

    def load(self, body: JsonObject) -> None:
        """Take a JSON body {"rules": [{"action": …}, …], "http_expired": bool, "cut_watches": "pods" or "*",
        "expire_watches": "pods" or "*"}: rules replace the rules in force; 400 names a bad field.
        """
        known = {found.name for found in fields(Fault)} - {"hits"}
        rules: list[Fault] = []
        for index, given in enumerate(body.get("rules") or []):
            unknown = sorted(set(given) - known)
            if unknown:
                raise bad_request(f"rules[{index}]: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
            try:
                rules.append(Fault(**given))
            except (TypeError, ValueError) as error:
                raise bad_request(f"rules[{index}]: {error}") from error
        self.rules = rules
        self.http_expired = bool(body.get("http_expired"))
        for field, end in (("cut_watches", self.cut_watches), ("expire_watches", self.expire_watches)):
            resource = body.get(field)
            if resource:
                end(None if resource == "*" else resource)

    def describe(self) -> JsonObject:
        """The rules in force with their hit counts."""
        names = [found.name for found in fields(Fault)]
        return {
            "rules": [{name: getattr(rule, name) for name in names} for rule in self.rules],
            "http_expired": self.http_expired,
        }


def expired_line() -> bytes:
    """The in-stream ERROR that ends a watch whose resourceVersion is gone."""
    return error_line(expired("The resourceVersion for the provided watch is too old."))
