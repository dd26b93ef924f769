"""Submissions: from a message of JOBS to an outcome in SUBMISSIONS, an object in Kubernetes and a first step on STATUS.

    Submit ─► outcome there? ── yes ─► tell it again, finish what a crash left undone
                  │ no
                  ▼
              judge ─► rejected ─► record, tell
                  └──► record(accepted, no uid) ─► create (fixed name) ─► record the uid ─► tell
    Cancel ─► nothing there: a tombstone for the late Submit; accepted: record(cancelled) ─► delete ─► tell

Each arrow may be followed by a crash: the message comes again and finds its way on. An object is created only while the
outcome has no uid, so a copy that arrives after the job has ended and gone starts nothing.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from muster.bus.errors import BusError, UndecodableError, WrongLastSequenceError
from muster.bus.messages import SUBMISSION_ID, FieldError, SubmissionOutcome, Submit
from muster.bus.submissions import Recorded, Submissions, parse_cancel, parse_submit
from muster.bus.work import Job, Unhandled
from muster.controller.metrics import ControllerMetrics
from muster.controller.telling import Teller
from muster.decide.findings import Problem
from muster.decide.lifecycle.actions import BATCH_JOBS, VCJOBS
from muster.decide.lifecycle.status import FINAL, Observed
from muster.decide.lifecycle.submission import Absent, Cluster, Judged, is_ours, judge
from muster.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from muster.kube.writer import Writer
from muster.model.policy import Policy

PAUSE_SHORTEST = 0.2
PAUSE_LONGEST = 5.0
CATCH_UP_SECONDS = 5.0
KIND_NAMES = {VCJOBS: "vcjob", BATCH_JOBS: "job"}
KINDS = {name: kind for kind, name in KIND_NAMES.items()}
LONGEST_SHOWN = 160
ID = re.compile(SUBMISSION_ID)


class Refused(Exception):  # noqa: N818  (an outcome, not a failure)
    """Kubernetes refuses the object for good."""

    def __init__(self, problem: Problem) -> None:
        """See the class."""
        super().__init__(problem.message)
        self.problem = problem


class Submitter:
    """Handles JOBS; see the module."""

    def __init__(
        self,
        *,
        submissions: Submissions,
        writer: Writer,
        teller: Teller,
        policy: Policy,
        cluster: Callable[[], Cluster | None],
        metrics: ControllerMetrics,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """`cluster` gives what STATE shows now, None while it is not known."""
        self._submissions = submissions
        self._writer = writer
        self._teller = teller
        self.policy = policy
        self._cluster = cluster
        self._metrics = metrics
        self._log = log

    async def handle(self, job: Job) -> None:
        """One message; returns when it may be acknowledged.

        While NATS or the API server is away it waits here: the message is nobody's fault and must not become a dead letter.

        Raises:
            Unhandled: it can never be handled.
        """
        pause = PAUSE_SHORTEST
        while True:
            try:
                if job.verb == "submit":
                    await self._submit(job)
                else:
                    await self._cancel(job)
            except (Unhandled, UndecodableError):
                raise
            except (BusError, KubeError) as error:
                self._log.warning("a submission waits", tenant=job.tenant, verb=job.verb, error=str(error))
                await asyncio.sleep(pause)
                pause = min(PAUSE_LONGEST, pause * 2)
            else:
                return

    # Submit

    async def _submit(self, job: Job) -> None:
        began = time.monotonic()
        parsed = parse_submit(job.body, job.headers)
        if ID.fullmatch(parsed.id) is None:
            message = "; ".join(f"{error.field}: {error.message}" for error in parsed.errors)
            raise Unhandled("undecodable", message or "id: a submission needs an id")
        if job.tenant not in self.policy.tenants:
            known = ", ".join(sorted(self.policy.tenants))
            raise Unhandled("refused", f"tenant: {job.tenant!r} is not known here; known are {known}")
        async with self._teller.lock(job.tenant, parsed.id):
            found = await self._submissions.find(job.tenant, parsed.id)
            if found is not None and (found.outcome.uid or found.outcome.state != "accepted"):
                self._metrics.duplicates.inc()
                await self._tell(found.outcome)
                return
            if parsed.submit is None:
                found = await self._submissions.record(self._rejection(job.tenant, parsed.id, parsed.errors))
            else:
                found = await self._settle(job.tenant, parsed.submit, found)
            await self._tell(found.outcome)
        self._metrics.submissions.labels(job.tenant, found.outcome.state).inc()
        if found.outcome.state == "accepted":
            self._metrics.accepted_after.observe(time.monotonic() - began)
        self._log.info(
            "submission",
            tenant=job.tenant,
            id=parsed.id,
            outcome=found.outcome.state,
            job=f"{found.outcome.namespace}/{found.outcome.job}" if found.outcome.job else "",
            errors=[error.field for error in found.outcome.errors],
        )

    async def _settle(self, tenant: str, submit: Submit, found: Recorded | None) -> Recorded:
        """Judge, record and create. `found`: an accepted outcome without a uid, left by a crash."""
        judged = await self._judge(tenant, submit)
        if judged.problems:
            errors = tuple(_field_error(problem) for problem in judged.problems)
            return await self._reject(tenant, submit.id, errors, found)
        if found is None:
            found = await self._submissions.record(
                SubmissionOutcome(
                    tenant=tenant,
                    id=submit.id,
                    state="accepted",
                    namespace=judged.namespace,
                    job=judged.name,
                    kind=KIND_NAMES[judged.kind],
                    at=time.time(),
                )
            )
            if found.outcome.state != "accepted" or found.outcome.uid:
                return found
        try:
            uid = await self._create(tenant, submit.id, judged)
        except Refused as refused:
            return await self._reject(tenant, submit.id, (_field_error(refused.problem),), found)
        outcome = msgspec.structs.replace(found.outcome, uid=uid)
        try:
            return await self._submissions.replace(outcome, revision=found.revision)
        except WrongLastSequenceError:
            # Another controller, or a cancellation, was here: what stands there counts.
            now = await self._submissions.find(tenant, submit.id)
            if now is None or now.outcome.state != "cancelled":
                return now if now is not None else found
            await self._delete(msgspec.structs.replace(now.outcome, kind=KIND_NAMES[judged.kind], uid=uid))
            return now

    async def _judge(self, tenant: str, submit: Submit) -> Judged:
        """Judge by STATE; what STATE lacks and Kubernetes has is on its way, and is waited for."""
        judged = judge(submit, tenant=tenant, cluster=await self._known_cluster())
        if judged.absent and [one for one in judged.absent if await self._exists(one)]:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + CATCH_UP_SECONDS
            while judged.absent and loop.time() < deadline:
                await asyncio.sleep(0.05)
                judged = judge(submit, tenant=tenant, cluster=await self._known_cluster())
        return judged

    async def _exists(self, absent: Absent) -> bool:
        try:
            await self._writer.get(absent.kind, None, absent.name)
        except NotFound:
            return False
        except Invalid:
            return False
        return True

    async def _known_cluster(self) -> Cluster:
        while True:
            cluster = self._cluster()
            if cluster is not None:
                return cluster
            await asyncio.sleep(0.05)

    async def _create(self, tenant: str, submission_id: str, judged: Judged) -> str:
        """Create the object as the tenant's user; the result is its uid."""
        user = self.policy.tenants[tenant].user
        writer = self._writer.impersonating(user) if user else self._writer
        try:
            created = await writer.create(judged.kind, judged.namespace, judged.document)
        except AlreadyExists:
            created = await self._writer.get(judged.kind, judged.namespace, judged.name)
            if not is_ours(created.metadata.annotations, tenant=tenant, submission_id=submission_id):
                message = (
                    f"{judged.namespace}/{judged.name} exists and was not made by this submission; choose another id"
                )
                raise Refused(Problem(field="name", value=judged.name, message=message)) from None
        except (Invalid, Forbidden, NotFound) as error:
            message = f"Kubernetes refuses it: {error.message}"
            raise Refused(Problem(field="manifest", value=judged.name, message=message)) from error
        return str(created.metadata.uid)

    async def _reject(
        self, tenant: str, submission_id: str, errors: tuple[FieldError, ...], found: Recorded | None
    ) -> Recorded:
        outcome = self._rejection(tenant, submission_id, errors)
        if found is None:
            return await self._submissions.record(outcome)
        return await self._submissions.replace(outcome, revision=found.revision)

    def _rejection(self, tenant: str, submission_id: str, errors: tuple[FieldError, ...]) -> SubmissionOutcome:
        for error in errors:
            self._metrics.rejections.labels(field_class(error.field)).inc()
        return SubmissionOutcome(tenant=tenant, id=submission_id, state="rejected", errors=errors, at=time.time())

    # Cancel

    async def _cancel(self, job: Job) -> None:
        try:
            cancel = parse_cancel(job.body, job.headers)
        except UndecodableError as error:
            raise Unhandled("undecodable", str(error)) from error
        if job.tenant not in self.policy.tenants:
            raise Unhandled("refused", f"tenant: {job.tenant!r} is not known here")
        async with self._teller.lock(job.tenant, cancel.id):
            tombstone = SubmissionOutcome(tenant=job.tenant, id=cancel.id, state="cancelled", at=time.time())
            found = await self._submissions.record(tombstone)
            outcome = found.outcome
            if outcome.state == "accepted":
                last = await self._teller.last(job.tenant, cancel.id)
                if last is not None and last.state in FINAL:
                    return
                outcome = msgspec.structs.replace(outcome, state="cancelled", at=time.time())
                await self._submissions.replace(outcome, revision=found.revision)
            if outcome.state != "cancelled":
                return
            await self._delete(outcome)
            await self._tell(outcome, reason="Cancelled", message=cancel.reason or "cancelled by its owner")
        self._metrics.submissions.labels(job.tenant, "cancelled").inc()
        self._log.info("submission", tenant=job.tenant, id=cancel.id, outcome="cancelled")

    async def _delete(self, outcome: SubmissionOutcome) -> None:
        """Delete the object of a cancelled submission; of its own object only."""
        if not outcome.job:
            return
        kind = KINDS.get(outcome.kind, VCJOBS)
        uid = outcome.uid
        try:
            if not uid:
                found = await self._writer.get(kind, outcome.namespace, outcome.job)
                if not is_ours(found.metadata.annotations, tenant=outcome.tenant, submission_id=outcome.id):
                    return
                uid = found.metadata.uid
            await self._writer.delete(kind, outcome.namespace, outcome.job, uid=uid, propagation="Background")
        except (NotFound, Conflict):
            return

    # Telling

    async def _tell(self, outcome: SubmissionOutcome, *, reason: str = "", message: str = "") -> None:
        """Tell the outcome if it was not told yet. The submission's lock is held."""
        job = f"{outcome.namespace}/{outcome.job}" if outcome.job else ""
        last = await self._teller.last(outcome.tenant, outcome.id)
        match outcome.state:
            case "accepted":
                if last is None:
                    await self._teller.tell(outcome.tenant, outcome.id, Observed(state="Accepted"), job=job)
            case "rejected":
                if last is None:
                    lines = [f"{error.field}: {error.message}" for error in outcome.errors]
                    observed = Observed(state="Rejected", reason="Invalid", message="; ".join(lines)[:1024])
                    details: dict[str, Any] = {"errors": msgspec.to_builtins(outcome.errors)}
                    await self._teller.tell(outcome.tenant, outcome.id, observed, details=details)
            case "cancelled":
                observed = Observed(
                    state="Cancelled",
                    reason=reason or "Cancelled",
                    message=message or "cancelled before it was created",
                )
                await self._teller.tell(outcome.tenant, outcome.id, observed, job=job)


def _field_error(problem: Problem) -> FieldError:
    value = problem.value
    shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
    return FieldError(field=problem.field, value=shown, message=problem.message)


def field_class(field: str) -> str:
    """A field's path without indexes and names, so that a metric has few labels."""
    return re.sub(r"\[[^\]]*\]", "", field)[:80]
