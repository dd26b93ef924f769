"""Takes warnings off pods that no open plan names any more: whoever reads its own pod must not think that it has to leave.

The write carries the version at which no plan named the pod, so a newer plan's warning is never taken off.
"""

import structlog

from muster.decide.commitments import LedgerView
from muster.decide.warnings import EVICT_FOR, MARKS, is_marked, outlived
from muster.kube.errors import Conflict, KubeError, NotFound
from muster.kube.writer import Writer
from muster.model.pods import Pod
from muster.preemptor.telling import Telling
from muster.view.world import World

AGAIN_SECONDS = 2.0


class Unmarking:
    """The pods that carry warnings, and those of them that stay."""

    def __init__(self, *, writer: Writer, world: World, telling: Telling, log: structlog.stdlib.BoundLogger) -> None:
        self._writer = writer
        self._world = world
        self._telling = telling
        self._log = log
        self._marked: set[str] = set()
        """Keys of pods that may carry a warning."""

    def begin(self) -> None:
        """Look through all pods once."""
        self._marked = {key for key, pod in self._world.pods.items() if is_marked(pod)}

    def changed(self, pod: Pod) -> None:
        """A pod came, or is not as it was."""
        if is_marked(pod):
            self._marked.add(pod.key)

    async def look(self, view: LedgerView) -> None:
        """Take the warnings off that are void; what fails is tried at the next look."""
        marked = [self._world.pods[key] for key in self._marked if key in self._world.pods]
        marked = [pod for pod in marked if is_marked(pod)]
        self._marked = {pod.key for pod in marked}
        for pod in outlived(view, marked):
            body = {
                "metadata": {
                    "uid": pod.uid,
                    "resourceVersion": pod.resource_version,
                    "annotations": dict.fromkeys(MARKS),
                }
            }
            try:
                await self._writer.merge_patch("pods", pod.namespace, pod.name, body)
            except (Conflict, NotFound):
                continue  # STATE will show what became of it
            except KubeError as error:
                self._log.warning("a warning stays on a pod for now", pod=pod.key, why=error.message)
                return
            self._marked.discard(pod.key)
            self._telling.stays(pod, pod.annotations.get(EVICT_FOR, ""))
