"""What one leadership keeps from round to round: the snapshot, and what decisions start from (see `muster.decide.join`).

Written to on the event loop between decisions only; a decision reads the basis in its thread.
"""

from muster.decide.basis import Basis
from muster.decide.commitments import LedgerView
from muster.decide.join import Join
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.view.world import World

KINDS = (
    "node",
    "queue",
    "priorityclass",
    "namespace",
    "workload",
    "hypernode",
    "claim",
    "volume",
    "storageclass",
    "pdb",
    "podgroup",
    "pod",
)


class Keeping:
    """The snapshot of a world, by what changes in it."""

    def __init__(self, *, world: World, policy: Policy) -> None:
        self._world = world
        self._begun = False
        self.join = Join(policy)
        self.basis = Basis()

    def snapshot(self, view: LedgerView) -> Snapshot:
        """Everything a decision looks at, now; the basis is told what is new in it."""
        world, join = self._world, self.join
        differences = world.take_differences()
        if differences.anew or not self._begun:
            self._begun = True
            join.clear()
            for kind in KINDS:
                for key, value in world.table(kind).items():
                    join.change(kind, key, value)
        else:
            for kind in KINDS:
                table = world.table(kind)
                for key in differences.keys.get(kind, ()):
                    join.change(kind, key, table.get(key))
        join.follow(view)
        snapshot = join.snapshot()
        self.basis.note(join.take_changes(everything=self.basis.lost))
        return snapshot
