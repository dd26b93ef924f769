"""The greedy: one gang at a time, best fit, whole or not at all.

    gang domain (required: tightest that holds everything) ──► roles, largest first ──► role domain ──► nodes, fullest first

A gang that wishes a level is put into the narrowest domain that holds all of it, the tightest of those; when none does, over
as few narrow domains as its required one allows. A failed try is rolled back, so the room is as before.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from muster.decide.asks import Ask, RoleAsk
from muster.decide.fleet import Ints, Mask
from muster.decide.neighbours import company
from muster.decide.placement.domain_choice import bound_rows, candidates, domain_ranks, holding, rows_of
from muster.decide.placement.feasibility import allowed, avoided, preference
from muster.decide.placement.fragmentation import Mix
from muster.decide.placement.landing import Landed, Landing
from muster.decide.placement.role_orders import role_orders
from muster.decide.room import Room
from muster.decide.topology import preferred_domains, resolve
from muster.model.pods import Shape
from muster.model.policy import Packing

__all__ = ["Greedy", "Landed"]

MOST_DOMAINS_TRIED = 64
AVOIDED = 1 << 30
"""A taint PreferNoSchedule outweighs everything else that is only preferred."""


class Greedy(Landing):
    """Places pods into a room; what it places is taken there."""

    def __init__(
        self,
        room: Room,
        packing: Packing,
        *,
        blocked: dict[Shape, Mask] | None = None,
        largest_cards: bool = False,
        thrifty: bool = False,
        mix: Mix | None = None,
    ) -> None:
        """``thrifty``: small roles first, for a gang that could make up its minimum in a way that its queue is not allowed."""
        super().__init__(room, packing, blocked=blocked, largest_cards=largest_cards, mix=mix)
        self.thrifty = thrifty

    def minimum(self, ask: Ask) -> list[Landed] | None:
        """Everything that the gang's and the roles' minimums lack, or None with the room untouched."""
        orders = role_orders(ask)
        for rows, cluster in self._gang_domains(ask):
            for order in reversed(orders) if self.thrifty else orders:
                mark = self.room.mark()
                landed = self._fill(ask, order, rows, cluster)
                if landed is not None:
                    return landed
                self.room.rollback(mark)
        return None

    def surplus(self, ask: Ask, placed: Sequence[Landed], role_number: int) -> Landed | None:
        """One more pod of a role, near what stands and was placed, or None."""
        role = ask.roles[role_number]
        rows: Mask | None = None
        everyone = [*rows_of(self.room, ask.standing), *(landed.row for landed in placed)]
        own = [*rows_of(self.room, role.standing), *(landed.row for landed in placed if landed.role == role_number)]
        near: list[Mask] = []
        for wish, where in ((ask.gang.topology, everyone), (role.topology, own)):
            resolved = resolve(self.room.fleet, wish)
            if resolved.unknown:
                return None
            bound = bound_rows(self.room, resolved, where)
            if bound is not None:
                rows = bound if rows is None else rows & bound
            if resolved.preferred is not None and where:
                codes = preferred_domains(self.room.fleet, resolved.preferred)
                near.append(np.isin(codes, codes[where]))
        if not everyone:
            # The first pod of a gang without a minimum chooses the domain for all that follow.
            for chosen, _ in self._gang_domains(ask):
                mask = chosen if rows is None else (rows if chosen is None else rows & chosen)
                landed = self._role(role_number, role, 1, mask, None)
                if landed:
                    return landed[0]
            return None
        for mask in [*near, None]:
            inside = rows if mask is None else (mask if rows is None else rows & mask)
            landed = self._role(role_number, role, 1, inside, None)
            if landed:
                return landed[0]
        return None

    def slice(self, ask: Ask, placed: Sequence[Landed], number: int) -> list[Landed] | None:
        """All that waits of one slice, in the domain where the gang stands (any that the gang may use, when it does not)."""
        wanted = [(number, len(ask.roles[number].waiting))]
        if placed or ask.standing:
            return self.beside(ask, placed, wanted)
        for rows, cluster in self._gang_domains(ask):
            landed = self._role_in_domain(number, ask.roles[number], wanted[0][1], rows, cluster)
            if landed is not None:
                return landed
        return None

    def beside(self, ask: Ask, placed: Sequence[Landed], counts: Sequence[tuple[int, int]]) -> list[Landed] | None:
        """Pods of more roles, as (role, pods), in the domain where others of the gang were placed; all or none."""
        mark = self.room.mark()
        everyone = [*rows_of(self.room, ask.standing), *(landed.row for landed in placed)]
        rows = bound_rows(self.room, resolve(self.room.fleet, ask.gang.topology), everyone)
        landed: list[Landed] = []
        for number, count in counts:
            more = self._role_in_domain(number, ask.roles[number], count, rows, None)
            if more is None:
                self.room.rollback(mark)
                return None
            landed += more
        return landed

    def _gang_domains(self, ask: Ask) -> Iterator[tuple[Mask | None, Ints | None]]:
        """Rows to try for the whole gang, best first, with the narrow domains to use few of (None: it does not matter)."""
        parts = [(role.shape, len(role.waiting), role.need) for role in ask.roles if role.waiting]
        standing = rows_of(self.room, ask.standing)
        yield from candidates(
            self.room, self.capacity, ask.gang.topology, parts, standing=standing, minimum=ask.minimum, inside=None
        )

    def _fill(self, ask: Ask, order: Sequence[int], rows: Mask | None, cluster: Ints | None) -> list[Landed] | None:
        landed: list[Landed] = []
        for number in order:
            role = ask.roles[number]
            if role.need:
                placed = self._role_in_domain(number, role, role.need, rows, cluster)
                if placed is None:
                    return None
                landed += placed
        missing = ask.need - len(landed)
        for number in order:
            if missing <= 0:
                break
            role = ask.roles[number]
            if role.whole:
                continue  # a slice is needed whole or not at all
            room = int(self.capacity(role.shape, rows).sum())
            for count in range(min(missing, len(role.waiting) - role.need, room), 0, -1):
                own = [one for one in landed if one.role == number]
                placed = self._role_in_domain(number, role, count, rows, cluster, own=own)
                if placed is not None:
                    landed += placed
                    missing -= count
                    break
        return landed if missing <= 0 else None

    def _role_in_domain(
        self,
        number: int,
        role: RoleAsk,
        count: int,
        rows: Mask | None,
        cluster: Ints | None,
        *,
        own: Sequence[Landed] = (),
    ) -> list[Landed] | None:
        standing = [*rows_of(self.room, role.standing), *(landed.row for landed in own)]
        parts = [(role.shape, count, count)]
        tries = candidates(
            self.room, self.capacity, role.topology, parts, standing=standing, minimum=count, inside=rows
        )
        for inside, narrow in tries:
            mark = self.room.mark()
            landed = self._role(number, role, count, inside, cluster if narrow is None else narrow)
            if landed is not None:
                return landed
            self.room.rollback(mark)
        return None

    def _role(
        self, number: int, role: RoleAsk, count: int, rows: Mask | None, cluster: Ints | None
    ) -> list[Landed] | None:
        if role.shape.namespace and role.shape.has_terms:
            return self._beside_others(number, role, count, rows)
        fits = self.capacity(role.shape, rows)
        if int(fits.sum()) < count:
            return None
        landed: list[Landed] = []
        if cluster is None:
            self.pods(number, role, count, fits, landed)
            return landed if len(landed) == count else None
        sums = np.bincount(cluster, weights=fits, minlength=int(cluster.max(initial=0)) + 1).astype(np.int64)
        while len(landed) < count and sums.any():
            left = count - len(landed)
            enough = sums[sums >= left]
            among = np.flatnonzero(sums == (enough.min() if enough.size else sums.max()))
            code = int(among[domain_ranks(self.room, cluster)[among].argmin()] if among.size > 1 else among[0])
            self.pods(number, role, min(left, int(sums[code])), np.where(cluster == code, fits, 0), landed)
            sums[code] = 0
        return landed if len(landed) == count else None

    def _beside_others(self, number: int, role: RoleAsk, count: int, rows: Mask | None) -> list[Landed] | None:
        """Pods with terms about other pods, one by one, each where the terms leave it with the others placed.

        Where the first pod chooses for the rest, every domain that it could choose is tried, the tightest that may do first.
        """
        mark = self.room.mark()
        tries: list[Mask | None] = [rows]
        around = self.room.around()
        for term in [] if around.companions(role.shape).any() else company(role.shape.pod_terms):
            codes = around.codes(term.topology_key)
            enough = holding(self.room, codes, [self.capacity(role.shape, rows)], [count], set())
            tries += [codes == code if rows is None else rows & (codes == code) for code in enough[:MOST_DOMAINS_TRIED]]
        for inside in tries:
            landed: list[Landed] = []
            while len(landed) < count and self._next(number, role, inside, landed):
                pass
            if len(landed) == count:
                return landed
            self.room.rollback(mark)
        return None

    def _next(self, number: int, role: RoleAsk, rows: Mask | None, landed: list[Landed]) -> bool:
        """One pod more, where it is liked best of where it may go."""
        shape, fleet = role.shape, self.room.fleet
        fits = np.where(allowed(self.room, shape).rows, self.capacity(shape, rows), 0)
        free = np.flatnonzero(fits)
        if not free.size:
            return False
        liking = self.room.around().liking(shape) + preference(fleet, shape) - AVOIDED * avoided(fleet, shape)
        best = liking == liking[free].max()
        before = len(landed)
        self.pods(number, role, 1, np.where(best, fits, 0), landed)
        return len(landed) > before
