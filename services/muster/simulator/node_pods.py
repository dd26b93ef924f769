"""The pods of one simulated node, from the moment they are bound to the moment they are gone.

    WAITING ─► STARTING ─► RUNNING ─► ENDED          any of them, deleted: STOPPING until the containers are out, then the
       │          (hang)     ▲  │                     kubelet's second delete with grace 0 removes the object
       └─► ENDED (rejected)  └──┘ restart policy

Nothing here waits: each step sets one timer for the next. While the kubelet is stopped, steps that fall due are kept and
made up for when it starts again (the containers went on by themselves).
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from muster.model.nodes import CardMode
from muster.simulator import pod_status
from muster.simulator.cards import Hold, NodeCards
from muster.simulator.cluster import NodeSpec
from muster.simulator.device_plugin import AllocationError, Demand
from muster.simulator.errors import ApiError
from muster.simulator.kubelet_admission import Refusal, refusal
from muster.simulator.node_status import allocatable_amounts
from muster.simulator.plugins import plugin_for
from muster.simulator.pod_life import Findings, Mixup, PodLife, Stage, Violation
from muster.simulator.pod_plan import Plan, PlanError
from muster.simulator.pod_requests import GPU, GPU_MEMORY, pod_requests
from muster.simulator.pod_status import Place
from muster.simulator.recorder import Recorder
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Pod = dict[str, Any]
SYNC_SECONDS = (0.01, 0.1)
"""A kubelet hears of a binding after a delay between these, different for every pod: so admission order is not binding order."""
BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
KILLED, TERMINATED = 137, 143


class NodePods:
    """The pods of one node; see the module's model."""

    def __init__(
        self, store: Store, timers: Timers, *, spec: NodeSpec, number: int, plan: Plan, findings: Findings
    ) -> None:
        """`number`: unique among the cluster's nodes, below 16,384; addresses follow from it."""
        self.cards = NodeCards(spec.cards)
        self.plugin = plugin_for(spec.card_mode, spec.card_plugin)
        self.address = f"172.{16 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        self.online = False
        self._store = store
        self._timers = timers
        self._spec = spec
        self._plan = plan
        self._findings = findings
        self._recorder = Recorder(store, "kubelet")
        self._number = number
        self._lives: dict[str, PodLife] = {}
        self._made_up: list[Callable[[], None]] = []
        self._addresses = 0

    def __iter__(self) -> Iterator[PodLife]:
        return iter(self._lives.values())

    def used(self) -> dict[str, int]:
        """Amounts held by admitted pods that have not ended, and how many there are."""
        total = {"pods": 0}
        for life in self._lives.values():
            if life.stage not in {Stage.WAITING, Stage.ENDED}:
                total["pods"] += 1
                for name, value in life.requests.items():
                    total[name] = total.get(name, 0) + value
        return total

    def busy(self, hold: Hold) -> float:
        """Percent of a card's core that the holder keeps busy; a share without a core part uses its part of the memory."""
        life = self._lives.get(hold.uid)
        if life is None or life.stage is not Stage.RUNNING:
            return 0.0
        index = self.cards.held_by(hold.uid)[0]
        part = hold.core_percent or 100.0 * hold.memory_mib / self.cards.state(index).card.memory_mib
        return part * life.plan.utilisation / 100.0

    # -- what the API server tells ---------------------------------------------------------------------------------

    def seen(self, pod: Pod) -> None:
        """The pod as it is now, bound to this node."""
        metadata = pod["metadata"]
        life = self._lives.get(metadata["uid"])
        phase = (pod.get("status") or {}).get("phase")
        if life is None:
            life = PodLife(metadata["uid"], metadata["namespace"], metadata["name"])
            self._lives[life.uid] = life
            if phase in {"Succeeded", "Failed"}:
                life.stage = Stage.ENDED
            else:
                low, high = SYNC_SECONDS
                drawn = zlib.crc32(f"{life.key}/{self._spec.name}".encode()) / 2**32
                self._next(life, low + (high - low) * drawn, lambda: self._admit(life))
        elif phase in {"Succeeded", "Failed"} and life.stage is not Stage.ENDED:
            self._end(life)
        if "deletionTimestamp" in metadata:
            grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
            if life.grace is None or grace < life.grace:
                self._stop(life, grace=grace)

    def gone(self, uid: str) -> None:
        """The pod's object was removed."""
        life = self._lives.pop(uid, None)
        if life is not None:
            self._end(life)
            if life.stop is not None:
                life.stop.cancel()

    def power_off(self) -> None:
        """The machine is gone with everything on it."""
        for uid in list(self._lives):
            self.gone(uid)
        self._made_up.clear()

    def catch_up(self) -> None:
        """Make up for the steps that fell due while the kubelet was stopped."""
        made_up, self._made_up = self._made_up, []
        for step in made_up:
            step()

    # -- admission ---------------------------------------------------------------------------------------------------

    def _admit(self, life: PodLife) -> None:
        pod = self._current(life)
        if pod is None or life.stopping:
            return
        try:
            life.plan = self._plan.of(pod)
        except PlanError as error:
            self._reject(life, pod, Refusal("SimulatorPlanInvalid", str(error)))
            return
        life.requests = pod_requests(pod)
        demand = self.plugin.demand(pod)
        refused = self._planned_refusal(life, pod) or self._unfit(life, pod)
        if refused is None and demand and self._spec.cards:
            refused = self._allocate(life, pod, demand)
        if refused is not None:
            self._reject(life, pod, refused)
            return
        life.place = Place(self.address, self._pod_address(), self._devices(life))
        life.stage = Stage.STARTING
        self._write(life, pod_status.starting(pod, self._now(), place=life.place))
        if not life.plan.hang:
            self._next(life, self._plan.start_delay(pod, life.plan), lambda: self._run(life))

    def _planned_refusal(self, life: PodLife, pod: Pod) -> Refusal | None:
        if not life.plan.refuse:
            return None
        spent = f"{life.namespace}/{pod['metadata'].get('generateName') or life.name}"
        if spent in self._findings.refused:
            return None
        self._findings.refused.add(spent)
        return Refusal(life.plan.refuse, f"{life.plan.refuse}: asked for by the simulator's plan")

    def _unfit(self, life: PodLife, pod: Pod) -> Refusal | None:
        allocatable = allocatable_amounts(self._spec, self.plugin.advertise(self.cards))
        for name in (GPU, GPU_MEMORY):
            if name == GPU_MEMORY and self._spec.card_mode is CardMode.RESERVED:
                continue
            if life.requests.get(name) and name not in allocatable:
                self._violated(life, f"asks {life.requests[name]} {name}, which the node does not offer")
        node = self._store.find("nodes", None, self._spec.name)
        if node is None:
            return Refusal("NodeAffinity", f"node {self._spec.name} is not registered")
        admitted = (
            other
            for held in self._lives.values()
            if held.stage not in {Stage.WAITING, Stage.ENDED} and (other := self._current(held)) is not None
        )
        return refusal(pod, node=node, requests=life.requests, used=self.used(), pods=admitted, allocatable=allocatable)

    def _allocate(self, life: PodLife, pod: Pod, demand: Demand) -> Refusal | None:
        waiting = [
            other
            for held in self._lives.values()
            if held.stage in {Stage.WAITING, Stage.STARTING}
            and not held.stopping
            and (other := self._current(held)) is not None
        ]
        try:
            allocation = self.plugin.allocate(pod, demand, cards=self.cards, waiting=waiting)
        except AllocationError as error:
            return Refusal("UnexpectedAdmissionError", str(error))
        if allocation.consumed is not None:
            namespace, name = allocation.consumed
            self._store.patch("pods", namespace, name, {"metadata": {"annotations": allocation.annotations}})
            if f"{namespace}/{name}" != life.key:
                self._findings.mixups.append(Mixup(self._now(), self._spec.name, life.key, f"{namespace}/{name}"))
        parts = allocation.parts or ((demand.memory_mib, demand.core_percent),) * len(allocation.indexes)
        whole = demand.whole and not allocation.parts
        wrong = next(
            (
                text
                for index, (memory, core) in zip(allocation.indexes, parts, strict=True)
                if (text := self.cards.overcommitted((index,), memory_mib=memory, core_percent=core, whole=whole))
            ),
            "",
        )
        if wrong:
            self._violated(life, wrong)
            return Refusal("UnexpectedAdmissionError", f"Allocate failed due to {wrong}, which is unexpected")
        for index, (memory, core) in zip(allocation.indexes, parts, strict=True):
            self.cards.hold((index,), uid=life.uid, pod=life.key, memory_mib=memory, core_percent=core, whole=whole)
        return None

    def _reject(self, life: PodLife, pod: Pod, refused: Refusal) -> None:
        self._end(life)
        self._write(life, pod_status.rejected(self._now(), reason=refused.reason, message=refused.message))
        self._recorder.warning(pod, refused.reason, message=refused.message, host=self._spec.name)

    # -- running -----------------------------------------------------------------------------------------------------

    def _run(self, life: PodLife) -> None:
        pod = self._current(life)
        if pod is None or life.stopping:
            return
        life.stage = Stage.RUNNING
        life.started_at = self._now()
        self._write(life, pod_status.running(pod, self._now(), place=life.place, restarts=life.runs))
        held = [self.cards.state(index) for index in self.cards.held_by(life.uid)]
        if told := self.plugin.started(pod, held):
            self._store.patch("pods", life.namespace, life.name, {"metadata": {"annotations": told}})
        end = life.plan.end_of_run(life.runs)
        if end is not None:
            seconds, exit_code = end
            self._next(life, seconds, lambda: self.finish(life, exit_code))

    def finish(self, life: PodLife, exit_code: int, *, message: str = "") -> None:
        """The containers end with this code; the restart policy says what follows."""
        pod = self._current(life)
        if pod is None or life.stage is Stage.ENDED:
            return
        policy = pod["spec"].get("restartPolicy", "Always")
        restarts = policy == "Always" or (policy == "OnFailure" and exit_code != 0)
        if restarts and not life.stopping and life.started_at is not None:
            wait = min(BACKOFF_SECONDS * 2**life.runs, LONGEST_BACKOFF_SECONDS)
            life.stage = Stage.BACKING_OFF
            life.runs += 1
            status = pod_status.backing_off(
                pod,
                self._now(),
                place=life.place,
                restarts=life.runs,
                exit_code=exit_code,
                started_at=life.started_at,
                wait=wait,
            )
            self._write(life, status)
            self._next(life, wait, lambda: self._run(life))
            return
        self._finish_for_good(life, pod, exit_code=exit_code, message=message)

    def _finish_for_good(self, life: PodLife, pod: Pod, *, exit_code: int, message: str = "") -> None:
        status = pod_status.ended(
            pod,
            self._now(),
            place=life.place,
            restarts=life.runs,
            exit_code=exit_code,
            started_at=life.started_at,
            message=message,
        )
        self._end(life)
        self._write(life, status)
        if life.stopping:
            self._remove(life)

    def fail(self, life: PodLife, *, exit_code: int, message: str) -> None:
        """Something broke under the pod: it ends now, whatever its plan, and is not restarted in place."""
        pod = self._current(life)
        if pod is not None and life.stage is not Stage.ENDED:
            self._finish_for_good(life, pod, exit_code=exit_code, message=message)

    # -- deletion ----------------------------------------------------------------------------------------------------

    def _stop(self, life: PodLife, *, grace: float) -> None:
        life.grace = grace
        if life.stop is not None:
            life.stop.cancel()
        if life.stage is Stage.RUNNING:
            seconds = min(life.plan.stop_seconds, grace)
            code = KILLED if life.plan.stop_seconds > grace else TERMINATED
            life.stop = self._timers.after(seconds, self._when_online(life, lambda: self.finish(life, code)))
            return
        # Not running: there is nothing to wait for, but the object is removed outside the write that told us.
        life.stop = self._timers.after(0, self._when_online(life, lambda: self._stopped_idle(life)))

    def _stopped_idle(self, life: PodLife) -> None:
        pod = self._current(life)
        if pod is None:
            return
        if life.stage is Stage.ENDED:
            self._remove(life)
        else:
            self._finish_for_good(life, pod, exit_code=KILLED)

    def _remove(self, life: PodLife) -> None:
        try:
            self._store.delete("pods", life.namespace, life.name, grace_period=0, preconditions={"uid": life.uid})
        except ApiError as error:
            # Somebody else removed it first, and perhaps made another of the same name.
            if error.code not in {404, 409}:
                raise

    # -- shared ------------------------------------------------------------------------------------------------------

    def _end(self, life: PodLife) -> None:
        life.stage = Stage.ENDED
        self.cards.release(life.uid)
        if life.step is not None:
            life.step.cancel()

    def _next(self, life: PodLife, seconds: float, step: Callable[[], None]) -> None:
        life.step = self._timers.after(seconds, self._when_online(life, step))

    def _when_online(self, life: PodLife, step: Callable[[], None]) -> Callable[[], None]:
        def fire() -> None:
            if self._lives.get(life.uid) is not life:
                return
            if self.online:
                step()
            else:
                self._made_up.append(fire)

        return fire

    def _current(self, life: PodLife) -> Pod | None:
        pod = self._store.find("pods", life.namespace, life.name)
        return pod if pod is not None and pod["metadata"]["uid"] == life.uid else None

    def _write(self, life: PodLife, status: dict[str, Any]) -> None:
        if self._current(life) is not None:
            self._store.patch("pods", life.namespace, life.name, {"status": status}, subresource="status")

    def _devices(self, life: PodLife) -> tuple[tuple[str, str], ...]:
        if self._spec.card_mode is CardMode.RESERVED and not life.requests.get(GPU):
            return ()  # kubelet handed out nothing
        shared = bool(life.requests.get(GPU_MEMORY))
        return tuple(
            (GPU_MEMORY if shared else GPU, self.cards.state(index).card.uuid) for index in self.cards.held_by(life.uid)
        )

    def _violated(self, life: PodLife, message: str) -> None:
        self._findings.violations.append(Violation(self._now(), self._spec.name, life.key, message))

    def _pod_address(self) -> str:
        # 10/8 in blocks of 1,024 addresses a node, used in turn: unique among pods that live at the same time.
        self._addresses += 1
        value = (self._number << 10 | self._addresses % 1024) & 0xFFFFFF
        return f"10.{value >> 16}.{value >> 8 & 255}.{value & 255}"

    def _now(self) -> float:
        return self._store.clock.now()
