"""The demo's containers do nothing; this stands for the training code in them.

A real job reads ``muster.dev/evict-at`` from its own pod (downward API), or follows its STATUS; when it is warned it writes a
checkpoint and reports it. So does this, for every job one of whose pods carries the warning.
"""

import asyncio
import time

from muster.client import Muster
from muster.decide.lifecycle.vcjob_objects import JOB_NAME
from muster.decide.warnings import EVICT_PLAN
from muster.kube.errors import KubeError
from muster.kube.writer import Writer

LOOK_SECONDS = 0.5
CHECKPOINT_SECONDS = 1.0
"""How long the simulated training takes to write one."""


class Workloads:
    """Every job of the demo as its own code would behave."""

    def __init__(self, *, writer: Writer, muster: Muster, namespace: str = "default") -> None:
        self._writer = writer
        self._muster = muster
        self._namespace = namespace
        self._answered: set[tuple[str, str]] = set()
        """(job, plan) of warnings that were answered."""

    async def run(self) -> None:
        """React to warnings until cancelled."""
        while True:
            try:
                pods = await self._writer.list("pods", self._namespace)
            except KubeError:
                pods = ()
            warned = {
                (pod.metadata.labels[JOB_NAME], pod.metadata.annotations[EVICT_PLAN])
                for pod in pods
                if EVICT_PLAN in pod.metadata.annotations and JOB_NAME in pod.metadata.labels
            }
            for job, plan in sorted(warned - self._answered):
                self._answered.add((job, plan))
                await asyncio.sleep(CHECKPOINT_SECONDS)
                await self._muster.progress(
                    f"{self._namespace}/{job}", step=len(self._answered), checkpoint_at=time.time()
                )
            await asyncio.sleep(LOOK_SECONDS)
