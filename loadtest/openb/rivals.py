"""Random, BestFit and FGD as published, by our own hand, for comparison in the same run.

Every policy keeps a score for each kind of pod on each node; a placement changes one node, so one column is renewed. Rows are
in the order that breaks ties: the first of the best wins (the simulator takes the smallest renamed node name).

    BestFit  int(100 · (1 - ½·cpu left/128,000 - ½·gpu left/8,000)), then scaled to 0 … 100; the tightest card
    FGD      int(100 · sigmoid((F before - F after)/1000)), F = Σ p(m) · fragment for m over the most frequent kinds that make up
             95 % of the list; the card of the best score, whole cards by lowest index
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest.openb.trace import CARD, Order, Trace

Array = npt.NDArray[Any]
NEVER = -1e18
POPULAR = 0.95


class Cluster:
    """What is free, as arrays: cpu and memory [node], gpu [node, card] in thousandths; cards that do not exist are -1."""

    def __init__(self, trace: Trace, order: Order) -> None:
        machines = [trace.machines[place] for place in order.machines]
        self.kinds = trace.kinds
        self.cpu = np.array([machine.cpu for machine in machines])
        self.memory = np.array([machine.memory for machine in machines])
        width = max(machine.cards for machine in machines)
        self.gpu = np.array([[CARD] * machine.cards + [-1] * (width - machine.cards) for machine in machines])
        self.accepts = np.array(
            [[not kind.models or machine.model in kind.models for machine in machines] for kind in trace.kinds]
        )
        self.asked = np.array([[kind.cpu, kind.memory, kind.cards, kind.milli] for kind in trace.kinds])

    def fits(self, node: int) -> Array:
        """Which kinds fit on a node."""
        cpu, memory, cards, milli = self.asked.T
        room = (self.gpu[node] >= np.maximum(milli, 1)[:, None]).sum(axis=1) >= cards
        enough = (self.cpu[node] >= cpu) & (self.memory[node] >= memory)
        return np.asarray(enough & room & self.accepts[:, node])

    def take(self, number: int, node: int, card: int) -> None:
        """Place a pod; ``card`` matters for a share only."""
        kind = self.kinds[number]
        self.cpu[node] -= kind.cpu
        self.memory[node] -= kind.memory
        if kind.shared:
            self.gpu[node, card] -= kind.milli
        else:
            self.gpu[node, np.flatnonzero(self.gpu[node] == CARD)[: kind.cards]] = 0


class Rival:
    """A policy that scores every kind on every node."""

    def __init__(self, trace: Trace, order: Order) -> None:
        self.cluster = Cluster(trace, order)
        size = len(order.machines)
        self.scores = np.full((len(trace.kinds), size), NEVER)
        self.cards = np.zeros((len(trace.kinds), size), dtype=np.int64)
        for node in range(size):
            self._renew(node)

    def place(self, number: int) -> bool:
        """Place the next arrival; False when it fits nowhere."""
        scores = self.scores[number]
        node = self._choose(scores)
        if scores[node] == NEVER:
            return False
        self.cluster.take(number, node, self._card(number, node))
        self._renew(node)
        return True

    def _choose(self, scores: Array) -> int:
        return int(scores.argmax())

    def _card(self, number: int, node: int) -> int:
        return int(self.cards[number, node])

    def _renew(self, node: int) -> None:
        scores, cards = self._score(node)
        self.scores[:, node] = np.where(self.cluster.fits(node), scores, NEVER)
        self.cards[:, node] = cards

    def _score(self, node: int) -> tuple[Array, Array]:
        raise TypeError(f"{type(self).__name__} has no score for node {node}")


class Random(Rival):
    """Any node and any card that fits."""

    def __init__(self, trace: Trace, order: Order) -> None:
        self.random = random.Random(order.seed)
        super().__init__(trace, order)

    def _choose(self, scores: Array) -> int:
        where = np.flatnonzero(scores > NEVER)
        return int(where[self.random.randrange(where.size)]) if where.size else 0

    def _card(self, number: int, node: int) -> int:
        where = np.flatnonzero(self.cluster.gpu[node] >= max(self.cluster.kinds[number].milli, 1))
        return int(where[self.random.randrange(where.size)]) if where.size else 0

    def _score(self, node: int) -> tuple[Array, Array]:
        kinds = len(self.cluster.kinds)
        return np.full(kinds, float(node)), np.zeros(kinds, dtype=np.int64)


class BestFit(Rival):
    """The node with the least CPU and GPU left."""

    def _choose(self, scores: Array) -> int:
        fits = scores > NEVER
        if not fits.any():
            return 0
        low, high = scores[fits].min(), scores[fits].max()
        scaled = np.where(fits, (scores - low) * 100 // max(high - low, 1), NEVER)
        return int(scaled.argmax())

    def _score(self, node: int) -> tuple[Array, Array]:
        cluster = self.cluster
        cpu, _, cards, milli = cluster.asked.T
        gpu = np.maximum(cluster.gpu[node], 0)
        left = 0.5 * (cluster.cpu[node] - cpu) / 128_000 + 0.5 * (gpu.sum() - cards * milli) / 8_000
        tightest = np.where(gpu >= np.maximum(milli, 1)[:, None], gpu, 10**6).argmin(axis=1)
        return np.trunc((1 - left) * 100), tightest


class FGD(Rival):
    """Fragmentation gradient descent (Weng, Yang et al., USENIX ATC 2023)."""

    def __init__(self, trace: Trace, order: Order) -> None:
        kinds = trace.kinds
        # The published mix looks at CPU, cards and models, not at memory.
        seen = Counter(
            (kinds[number].cpu, kinds[number].milli, kinds[number].cards, kinds[number].models) for number in trace.pods
        )
        popular, total = [], 0
        for key, times in sorted(seen.items(), key=lambda item: (item[1], item[0]), reverse=True):
            if total >= POPULAR * len(trace.pods):
                break
            popular.append((key, times))
            total += times
        self.weight = np.array([times / total for _, times in popular])
        self.cpu, self.milli, self.count = np.array([key[:3] for key, _ in popular]).T
        machines = [trace.machines[place] for place in order.machines]
        self.accepts = np.array([[not key[3] or m.model in key[3] for key, _ in popular] for m in machines])
        super().__init__(trace, order)

    def _fragments(self, node: int, cpu: Array, gpu: Array) -> Array:
        """F for states of one node: cpu [state], gpu [state, card]."""
        total = gpu.sum(axis=-1)
        enough = gpu[:, None, :] >= self.milli[:, None]
        small = np.where(enough, 0, gpu[:, None, :]).sum(axis=-1)
        hosts = (self.milli > 0) & self.accepts[node] & (cpu[:, None] >= self.cpu) & (enough.sum(axis=-1) >= self.count)
        return np.asarray(np.where(hosts, small, total[:, None]) @ self.weight)

    def _score(self, node: int) -> tuple[Array, Array]:
        cluster = self.cluster
        cpu, _, cards, milli = cluster.asked.T
        gpu = np.maximum(cluster.gpu[node], 0)
        free, kinds, width = int(cluster.cpu[node]), cpu.size, gpu.size
        before = self._fragments(node, np.array([free]), gpu[None])[0]
        shared = (cards == 1) & (milli < CARD)
        possible = cluster.fits(node)
        best = np.full(kinds, NEVER)
        card = np.zeros(kinds, dtype=np.int64)
        if not possible.any():
            return best, card
        # One state per kind and card for shares, one per kind for the rest.
        number, where = np.nonzero((shared & possible)[:, None] & (gpu >= np.maximum(milli, 1)[:, None]))
        after = np.repeat(gpu[None], number.size, axis=0)
        after[np.arange(number.size), where] -= milli[number]
        rest = np.flatnonzero(possible & ~shared)
        whole = np.repeat(gpu[None], rest.size, axis=0)
        untouched = gpu == CARD
        whole[untouched[None] & (np.cumsum(untouched)[None] <= cards[rest][:, None])] = 0
        states = np.concatenate([after, whole])
        left = free - np.concatenate([cpu[number], cpu[rest]])
        scores = np.floor(100 / (1 + np.exp(-(before - self._fragments(node, left, states)) / 1000)))
        table = np.full((kinds, width), NEVER)
        table[number, where] = scores[: number.size]
        best = table.max(axis=1)
        card = table.argmax(axis=1)
        best[rest] = scores[number.size :]
        return best, card
