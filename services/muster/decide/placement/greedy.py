"""The greedy: one gang at a time, best fit, whole or not at all.

    gang domain (required: tightest that holds everything) ──► roles, largest first ──► role domain ──► nodes, fullest first

A gang that wishes a level is put into the narrowest domain that holds all of it, the tightest of those; when none does, over
as few narrow domains as its required one allows. A failed try is rolled back, so the room is as before.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask, RoleAsk
from muster.decide.fleet import Ints, Mask
from muster.decide.neighbours import company
from muster.decide.placement.feasibility import allowed, avoided, capacity, preference
from muster.decide.placement.fragmentation import Mix
from muster.decide.placement.packing import best_row, next_row, order_cards, order_rows
from muster.decide.placement.several import cards_for
from muster.decide.room import Pod, Room
from muster.decide.topology import Wish, domains, narrow_domains, preferred_domains, resolve, steps
from muster.model.pods import CardUse, Shape, TopologyWish
from muster.model.policy import Packing
from muster.model.units import CardIndex, CorePercent, MiB, NodeName

MOST_DOMAINS_TRIED = 64
AVOIDED = 1 << 30
"""A taint PreferNoSchedule outweighs everything else that is only preferred."""


class Landed(NamedTuple):
    """One pod of a role (by number in the ask) on a row, with its cards."""

    role: int
    row: int
    cards: tuple[CardUse, ...]


class Greedy:
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
        self.room = room
        self.packing = packing
        self.blocked = blocked or {}
        self.largest_cards = largest_cards
        self.thrifty = thrifty
        self.mix = mix

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

    def alike(self, role: RoleAsk, count: int) -> list[Landed]:
        """Pods of equal gangs of one pod each, as many as there is room for, as if they came one after the other."""
        landed: list[Landed] = []
        shape = role.shape
        if count == 1 and self.mix is None and shape not in self.blocked:
            row = next_row(self.room, shape, self.packing)
            if row is not None:
                if row < 0:
                    return landed
                cards = self.room.whole_cards(row, shape.request.cards)
                self.room.take(row, shape.request, cards, kind=shape.kind)
                return [Landed(0, row, cards)]
        self._pods(0, role, count, self._capacity(shape, None), landed)
        return landed

    def surplus(self, ask: Ask, placed: Sequence[Landed], role_number: int) -> Landed | None:
        """One more pod of a role, near what stands and was placed, or None."""
        role = ask.roles[role_number]
        rows: Mask | None = None
        everyone = [*self._rows_of(ask.standing), *(landed.row for landed in placed)]
        own = [*self._rows_of(role.standing), *(landed.row for landed in placed if landed.role == role_number)]
        near: list[Mask] = []
        for wish, where in ((ask.gang.topology, everyone), (role.topology, own)):
            resolved = resolve(self.room.fleet, wish)
            if resolved.unknown:
                return None
            bound = self._bound(resolved, where)
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
        everyone = [*self._rows_of(ask.standing), *(landed.row for landed in placed)]
        rows = self._bound(resolve(self.room.fleet, ask.gang.topology), everyone)
        landed: list[Landed] = []
        for number, count in counts:
            more = self._role_in_domain(number, ask.roles[number], count, rows, None)
            if more is None:
                self.room.rollback(mark)
                return None
            landed += more
        return landed

    def _rows_of(self, names: Sequence[NodeName]) -> list[int]:
        row_of = self.room.fleet.row_of
        return [row_of[name] for name in names if name in row_of]

    def _bound(self, wish: Wish, rows: Sequence[int]) -> Mask | None:
        """The only rows that a required level leaves when pods stand already; None when it leaves all."""
        if wish.required is None or not rows:
            return None
        codes = domains(self.room.fleet, wish.required)
        here = set(codes[list(rows)].tolist())
        if len(here) != 1 or -1 in here:
            return np.zeros(self.room.fleet.size, dtype=np.bool_)
        return np.asarray(codes == here.pop(), dtype=np.bool_)

    def _gang_domains(self, ask: Ask) -> Iterator[tuple[Mask | None, Ints | None]]:
        """Rows to try for the whole gang, best first, with the narrow domains to use few of (None: it does not matter)."""
        parts = [(role.shape, len(role.waiting), role.need) for role in ask.roles if role.waiting]
        yield from self._candidates(ask.gang.topology, self._rows_of(ask.standing), parts, ask.minimum, None)

    def _candidates(
        self,
        topology: TopologyWish,
        standing: Sequence[int],
        parts: Sequence[tuple[Shape, int, int]],
        minimum: int,
        inside: Mask | None,
    ) -> Iterator[tuple[Mask | None, Ints | None]]:
        fleet = self.room.fleet
        wish = resolve(fleet, topology)
        if wish.unknown:
            return
        if wish.required is None and wish.preferred is None:
            yield inside, None
            return
        bound = self._bound(wish, standing)
        base = bound if inside is None else (inside if bound is None else inside & bound)
        if wish.required is not None:
            within = domains(fleet, wish.required) >= 0
            base = within if base is None else base & within
        capacities = [self._capacity(shape, base) for shape, _, _ in parts]
        for codes in steps(fleet, wish):
            near = set(codes[list(standing)].tolist())
            for code in self._holding(codes, capacities, [count for _, count, _ in parts], near):
                rows = codes == code
                yield rows if base is None else rows & base, None
        cluster = narrow_domains(fleet, wish)
        if wish.required is None:
            yield base, cluster
            return
        codes = domains(fleet, wish.required)
        needs = [need for _, _, need in parts]
        for code in self._holding(codes, capacities, needs, set(), total=minimum, roomiest=True):
            rows = codes == code
            yield rows if base is None else rows & base, cluster

    def _capacity(self, shape: Shape, rows: Mask | None) -> Ints:
        blocked = self.blocked.get(shape)
        if blocked is not None:
            rows = ~blocked if rows is None else rows & ~blocked
        return capacity(self.room, shape, rows)

    def _holding(
        self,
        codes: Ints,
        capacities: Sequence[Ints],
        counts: Sequence[int],
        near: set[int],
        *,
        total: int = 0,
        roomiest: bool = False,
    ) -> list[int]:
        """Domains that may hold these counts of each role: those with standing pods first, then the tightest (or roomiest)."""
        inside = codes >= 0
        size = int(codes.max(initial=-1)) + 1
        if not size:
            return []
        sums = np.array(
            [np.bincount(codes[inside], weights=fits[inside], minlength=size) for fits in capacities], dtype=np.int64
        ).reshape(len(capacities), size)
        wanted = np.asarray(counts, dtype=np.int64)[:, None]
        holds = (sums >= wanted).all(axis=0) & (sums.sum(axis=0) >= total)
        chosen = np.flatnonzero(holds)
        left = (sums - wanted)[:, chosen]
        if roomiest:
            left = -left
        far = (
            np.array([code not in near for code in chosen.tolist()], dtype=np.bool_) if near else np.zeros(chosen.size)
        )
        if chosen.size < 2:
            return [int(code) for code in chosen]
        return [int(code) for code in chosen[np.lexsort((self._domain_ranks(codes)[chosen], *left[::-1], far))]]

    def _domain_ranks(self, codes: Ints) -> Ints:
        """By domain code: the rank of the first of its nodes."""
        inside = codes >= 0
        ranks = np.full(int(codes.max(initial=-1)) + 1, codes.size, dtype=np.int64)
        np.minimum.at(ranks, codes[inside], self.room.ranks[inside])
        return ranks

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
            room = int(self._capacity(role.shape, rows).sum())
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
        standing = [*self._rows_of(role.standing), *(landed.row for landed in own)]
        parts = [(role.shape, count, count)]
        for inside, narrow in self._candidates(role.topology, standing, parts, count, rows):
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
        fits = self._capacity(role.shape, rows)
        if int(fits.sum()) < count:
            return None
        landed: list[Landed] = []
        if cluster is None:
            self._pods(number, role, count, fits, landed)
            return landed if len(landed) == count else None
        sums = np.bincount(cluster, weights=fits, minlength=int(cluster.max(initial=0)) + 1).astype(np.int64)
        while len(landed) < count and sums.any():
            left = count - len(landed)
            enough = sums[sums >= left]
            among = np.flatnonzero(sums == (enough.min() if enough.size else sums.max()))
            code = int(among[self._domain_ranks(cluster)[among].argmin()] if among.size > 1 else among[0])
            self._pods(number, role, min(left, int(sums[code])), np.where(cluster == code, fits, 0), landed)
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
            holding = self._holding(codes, [self._capacity(role.shape, rows)], [count], set())
            tries += [
                codes == code if rows is None else rows & (codes == code) for code in holding[:MOST_DOMAINS_TRIED]
            ]
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
        fits = np.where(allowed(self.room, shape).rows, self._capacity(shape, rows), 0)
        free = np.flatnonzero(fits)
        if not free.size:
            return False
        liking = self.room.around().liking(shape) + preference(fleet, shape) - AVOIDED * avoided(fleet, shape)
        best = liking == liking[free].max()
        before = len(landed)
        self._pods(number, role, 1, np.where(best, fits, 0), landed)
        return len(landed) > before

    def _pods(self, number: int, role: RoleAsk, count: int, fits: Ints, landed: list[Landed]) -> None:
        """Put up to ``count`` pods where they fit, best rows first."""
        shape = role.shape
        if shape.request.share is not None:
            self._shares(number, role, count, fits, landed)
            return
        if count == 1:
            rows = [best_row(self.room, shape, self.packing, fits, mix=self.mix)] if fits.any() else []
        else:
            rows = order_rows(self.room, shape, self.packing, np.flatnonzero(fits), most=count, mix=self.mix).tolist()
        taken = []
        for row in rows:
            here = min(count, int(fits[row]))
            taken += [
                Landed(number, row, cards) for cards in self.room.whole_cards_each(row, shape.request.cards, here)
            ]
            count -= here
            if not count:
                break
        self.room.take_together([Pod(one.row, shape, one.cards) for one in taken])
        landed += taken

    def _shares(self, number: int, role: RoleAsk, count: int, fits: Ints, landed: list[Landed]) -> None:
        shape, fleet = role.shape, self.room.fleet
        share = shape.request.share
        assert share is not None
        if share.count > 1:
            self._several(number, role, count, fits, landed)
            return
        slots = order_cards(
            self.room,
            shape,
            self.packing,
            np.flatnonzero(fits),
            largest_first=self.largest_cards,
            most=count,
            mix=self.mix,
        )
        left = fits.copy()
        for row, position, takes, fresh in zip(
            slots.rows.tolist(), slots.positions.tolist(), slots.fits.tolist(), slots.fresh.tolist(), strict=True
        ):
            if fresh and self.room.whole_free[row] <= 0:
                continue
            use = CardUse(
                index=CardIndex(int(fleet.card_index[row, position])),
                memory_mib=MiB(share.memory_mib),
                core_percent=CorePercent(share.core_percent),
            )
            for _ in range(min(count, takes, int(left[row]))):
                self.room.take(row, shape.request, (use,), ports=shape.host_ports, kind=shape.kind)
                landed.append(Landed(number, row, (use,)))
                left[row] -= 1
                count -= 1
            if not count:
                return

    def _several(self, number: int, role: RoleAsk, count: int, fits: Ints, landed: list[Landed]) -> None:
        """Pods that take shares of several cards each."""
        request = role.shape.request
        for row in order_rows(self.room, role.shape, self.packing, np.flatnonzero(fits)).tolist():
            here = min(count, int(fits[row]))
            for number_here in range(here):
                cards = cards_for(self.room, row, request, more=here - number_here - 1)
                if not cards:
                    break
                self.room.take(row, request, cards, ports=role.shape.host_ports)
                landed.append(Landed(number, row, cards))
                count -= 1
            if not count:
                return


def size_key(shape: Shape) -> tuple[int, int, int, int, int]:
    """How large a pod is: cards, then shares, then CPU and memory."""
    request = shape.request
    share = request.share
    return (
        request.cards,
        share.memory_mib if share is not None else 0,
        share.core_percent if share is not None else 0,
        request.cpu,
        request.memory,
    )


def role_orders(ask: Ask) -> list[tuple[int, ...]]:
    """Orders in which roles are tried: largest first, as declared, smallest first; each only once."""
    declared = tuple(range(len(ask.roles)))
    if len(declared) == 1:
        return [declared]
    largest = tuple(
        sorted(declared, key=lambda number: (tuple(-part for part in size_key(ask.roles[number].shape)), number))
    )
    smallest = tuple(reversed(largest))
    bound = tuple(
        sorted(
            declared, key=lambda n: (not ask.roles[n].shape.node_selector, *(-p for p in size_key(ask.roles[n].shape)))
        )
    )
    return list(dict.fromkeys((largest, bound, declared, smallest)))
