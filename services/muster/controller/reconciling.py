"""One look at one object: ask the pure core what should be, carry it out.

target ──► View (what STATE shows) ──► decide.lifecycle ──► actions ──► Executor
                    └──► observe ──► Teller (a submission's steps)
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from muster.bus.errors import BusError
from muster.bus.messages import StatusEvent
from muster.controller.decisions import Decisions
from muster.controller.executing import Executor, NameTakenError
from muster.controller.metrics import ControllerMetrics
from muster.controller.pacing import WorkList
from muster.controller.remarks import KINDS, Remarks
from muster.controller.telling import Teller
from muster.controller.view import Target, View, gang_of_workload, group_for_pod
from muster.decide.doubts import annotation_doubts
from muster.decide.lifecycle.actions import Action, Leaving, Tell
from muster.decide.lifecycle.gangs import (
    REWRITE_AFTER,
    Told,
    placed,
    reconcile_members,
    reconcile_podgroup,
    with_doubts,
)
from muster.decide.lifecycle.leaving import leaving_of
from muster.decide.lifecycle.podgroups import reconcile_batch_job, reconcile_pod
from muster.decide.lifecycle.progress import last_checkpoint
from muster.decide.lifecycle.queues import missing_queues, reconcile_queue
from muster.decide.lifecycle.status import FINAL, Observed, observe
from muster.decide.lifecycle.submission import SUBMISSION, TENANT
from muster.decide.lifecycle.vcjob import Surroundings, reconcile_vcjob
from muster.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from muster.model.pods import Pod
from muster.model.workloads import Workload

STALE_SECONDS = 0.3
UNREADY_PAUSE = 0.05
QUEUE_SECONDS = 0.2
"""Queue statuses are written at most this often: every pod moves one."""
OLD_SECONDS = 600.0
"""Pods older than this were told of by an earlier leader."""
SWEPT_AFTER = 60.0


class Reconciler:
    """See the module. Workers call `work`; one target is with one worker at a time."""

    def __init__(
        self,
        *,
        view: View,
        executor: Executor,
        decisions: Decisions,
        teller: Teller,
        work_list: WorkList,
        metrics: ControllerMetrics,
        log: structlog.stdlib.BoundLogger,
        ready: Callable[[], bool],
    ) -> None:
        """Nothing is done before `work`. `ready`: whether the view is whole; on half a view pods seem to be gone."""
        self._ready = ready
        self._view = view
        self._executor = executor
        self._decisions = decisions
        self._teller = teller
        self._work_list = work_list
        self._metrics = metrics
        self._log = log
        self._told: dict[str, Told] = {}
        self._remarks = Remarks(tell=executor.tell, wall=time.time)
        self._placed: set[str] = set()
        self._queues_written: dict[str, float] = {}
        self._shares: dict[str, str] = {}
        """Cards that each queue is entitled to, as the scheduler told it last."""
        self._shares_written: dict[str, str] = {}
        self._ended: dict[str, Workload] = {}

    def begin(self) -> None:
        """A new leadership: nothing is known of what was told before."""
        self._told.clear()
        self._queues_written.clear()
        self._shares_written.clear()
        self._remarks.begin()
        oldest = time.time() - OLD_SECONDS
        self._placed = {pod.uid for pod in self._view.pods.values() if pod.node is not None and pod.created < oldest}

    def gone(self, key: str, job: Workload) -> None:
        """A job is no more; its submission must be told how it ended."""
        self._remarks.forget(job)
        if TENANT in job.annotations:
            self._ended[key] = job

    def pod_gone(self, pod: Pod) -> None:
        """A pod is no more."""
        self._placed.discard(pod.uid)

    async def work(self) -> None:
        """Take targets and reconcile them until cancelled."""
        while True:
            target = await self._work_list.take()
            while not self._ready():
                await asyncio.sleep(UNREADY_PAUSE)
            failed = True
            try:
                failed = not await self._reconcile(target)
            finally:
                self._work_list.done(target, failed=failed)

    async def _reconcile(self, target: Target) -> bool:
        began = time.monotonic()
        try:
            await self._look(target)
        except Conflict:
            # The view was older than the object: what made it newer is on its way.
            self._work_list.add_later(target, STALE_SECONDS)
        except (Invalid, Forbidden, NameTakenError) as error:
            self._failed(target, error)
            self._explain(target, str(error))
            return False
        except (KubeError, BusError) as error:
            self._failed(target, error)
            return False
        except Exception as error:  # noqa: BLE001  (one object that cannot be handled must not stop the others)
            self._failed(target, error)
            self._log.exception("an object cannot be reconciled", target=target.key, kind=target.kind)
            return False
        finally:
            self._metrics.reconciled.labels(target.kind).observe(time.monotonic() - began)
        return True

    def _failed(self, target: Target, error: Exception) -> None:
        name = type(error).__name__
        self._metrics.failures.labels(target.kind, name).inc()
        self._log.warning("not done yet", target=target.key, kind=target.kind, error=f"{name}: {error}")

    def _explain(self, target: Target, message: str) -> None:
        """Kubernetes refuses what a job asks for: its owner must hear it."""
        job = self._view.workloads.get(target.key) if target.kind == "workload" else None
        if job is not None:
            self._event(job, message)

    def _event(self, job: Workload, message: str) -> None:
        self._executor.tell(
            Tell(
                kind=KINDS[job.kind],
                namespace=job.namespace,
                name=job.name,
                uid=job.uid,
                reason="FailedCreate",
                message=message,
                warning=True,
            )
        )

    async def _look(self, target: Target) -> None:
        match target.kind:
            case "workload":
                await self._workload(target)
            case "pod":
                await self._pod(target)
            case "podgroup":
                await self._podgroup(target)
            case "queue":
                await self._queue(target)

    async def _workload(self, target: Target) -> None:
        ended = self._ended.get(target.key)
        if ended is not None:
            await self._tell_end(ended)
            self._ended.pop(target.key, None)
        job = self._view.workloads.get(target.key)
        if job is None:
            return
        view, policy = self._view, self._view.policy
        pods = view.pods_of_owner(job.uid)
        group = view.group_of_workload(job)
        gang = gang_of_workload(job)
        namespace = view.namespaces.get(job.namespace)
        if job.kind == "vcjob":
            around = Surroundings(
                policy=policy,
                now=time.time(),
                podgroup=group,
                namespace=namespace,
                waiting=self._decisions.waiting(gang),
                leaving=self._leaving(gang, pods),
                largest_card_mib=view.largest_card_mib,
            )
            actions = reconcile_vcjob(job, pods, around)
        else:
            actions = reconcile_batch_job(job, group, namespace=namespace, policy=policy)
        self._remarks.look(job, pods, policy=policy)
        if TENANT in job.annotations:
            await self._tell_step(job, pods)
        await self._carry_out(target, actions)

    async def _tell_step(self, job: Workload, pods: list[Pod]) -> None:
        tenant, submission_id = job.annotations[TENANT], job.annotations.get(SUBMISSION, "")
        if not submission_id or job.terminating:
            return
        gang = gang_of_workload(job)
        group = self._view.podgroups.get(gang)
        observed = observe(
            job,
            pods,
            self._decisions.waiting(gang),
            leaving=self._leaving(gang, pods),
            checkpoint_at=last_checkpoint(group.annotations) if group is not None else 0.0,
        )
        async with self._teller.lock(tenant, submission_id):
            await self._teller.tell(tenant, submission_id, observed, job=job.key)

    def _leaving(self, gang: str, pods: list[Pod]) -> Leaving | None:
        return leaving_of(pods, self._decisions.leaving(gang), now=time.time())

    async def _tell_end(self, job: Workload) -> None:
        """The job is gone: it ended as it last stood, or somebody took it away."""
        tenant, submission_id = job.annotations[TENANT], job.annotations.get(SUBMISSION, "")
        if not submission_id:
            return
        observed = observe(job, (), None)
        if observed.state not in FINAL:
            observed = Observed(state="Cancelled", reason="Deleted", message="the job was deleted")
        async with self._teller.lock(tenant, submission_id):
            await self._teller.tell(tenant, submission_id, observed, job=job.key)

    async def _pod(self, target: Target) -> None:
        pod = self._view.pods.get(target.key)
        if pod is None or pod.scheduler_name not in self._view.policy.scheduler_names:
            return
        if pod.node is not None and pod.uid not in self._placed:
            self._placed.add(pod.uid)
            self._executor.tell(placed(pod))
        if pod.gang is None:
            namespace = self._view.namespaces.get(pod.namespace)
            group = group_for_pod(self._view, pod)
            actions = reconcile_pod(pod, group, namespace=namespace, policy=self._view.policy)
            await self._carry_out(target, actions)

    async def _podgroup(self, target: Target) -> None:
        view, key, now = self._view, target.key, time.time()
        group = view.podgroups.get(key)
        members = view.pods_of_gang(key)
        if group is None and not members:
            self._decisions.forget(key)
            self._told.pop(key, None)
            return
        if any(pod.node is None and not pod.finished for pod in members):
            await self._decisions.ask(key)
        waiting = self._decisions.waiting(key)
        if waiting is not None:
            marks = [group.annotations] if group is not None else []
            marks += [pod.annotations for pod in {pod.role: pod for pod in members}.values()]  # one template each
            waiting = with_doubts(waiting, annotation_doubts(*marks))
        actions: list[Action] = []
        told, said = reconcile_members(members, waiting, self._told.get(key), policy=view.policy, now=now)
        if group is not None:
            stands_alone = group.owner is None or group.owner.uid in {pod.uid for pod in members}
            actions += reconcile_podgroup(
                group, members, waiting, policy=view.policy, now=now, stands_alone=stands_alone
            )
        actions += told
        await self._carry_out(target, actions)
        if said is None:
            self._told.pop(key, None)
        else:
            self._told[key] = said
            if waiting is not None and waiting.message != said.message:
                self._work_list.add_later(target, REWRITE_AFTER)

    async def _queue(self, target: Target) -> None:
        queue = self._view.queues.get(target.key)
        if queue is None:
            return
        since = time.monotonic() - self._queues_written.get(target.key, -QUEUE_SECONDS)
        if since < QUEUE_SECONDS:
            self._work_list.add_later(target, QUEUE_SECONDS - since)
            return
        groups = self._view.groups_of_queue(target.key)
        pods = [pod for group in groups for pod in self._view.pods_of_gang(group.key)]
        share = self._shares.get(target.key)
        # Written once a change: where the CRD is Volcano's own the field does not stay, and is not to be missed each time.
        news = share if share != self._shares_written.get(target.key) else None
        actions = reconcile_queue(queue, groups, pods, share=news)
        if actions:
            self._queues_written[target.key] = time.monotonic()
        await self._carry_out(target, actions)
        if news is not None:
            self._shares_written[target.key] = news

    def shares_are(self, shares: Mapping[str, str]) -> None:
        """What queues are entitled to now; those for which that is news are looked at."""
        news = [name for name, share in shares.items() if self._shares.get(name) != share]
        self._shares = dict(shares)
        self._work_list.add({Target("queue", name) for name in news})

    async def _carry_out(self, target: Target, actions: "list[Action] | tuple[Action, ...]") -> None:
        wake = await self._executor.carry_out(actions)
        if wake is not None:
            self._work_list.add_later(target, max(0.0, wake - time.time()))

    async def ensure_queues(self) -> None:
        """Make the queues that must exist.

        Raises:
            KubeError: one could not be made.
        """
        await self._executor.carry_out(missing_queues(self._view.queues, policy=self._view.policy))

    async def sweep(self) -> None:
        """Tell the end of submissions whose job is gone though nobody saw it go.

        Raises:
            BusError, KubeError: not all could be looked at; call it again.
        """
        known = {job.key for job in self._view.workloads.values()}
        oldest = time.time() - SWEPT_AFTER
        for event in self._teller.open_jobs():
            if event.at > oldest or event.job in known or not event.job:
                continue
            if not await self._still_there(event):
                observed = Observed(state="Cancelled", reason="Deleted", message="the job was deleted")
                async with self._teller.lock(event.tenant, event.id):
                    await self._teller.tell(event.tenant, event.id, observed, job=event.job)

    async def _still_there(self, event: StatusEvent) -> bool:
        namespace, _, name = event.job.partition("/")
        for kind in KINDS.values():
            try:
                await self._executor.writer.get(kind, namespace, name)
            except NotFound:
                continue
            return True
        return False
