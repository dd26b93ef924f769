"""The random numbers of Go's math/rand, so that the published orders can be had exactly.

The simulator of the FGD paper shuffles pods, draws the extra ones and shuffles the nodes' names with Go's generator seeded by
42 … 51. It is an additive lagged Fibonacci generator, y(t) = y(t-607) + y(t-273) mod 2^64, whose start is mixed with the
state of the same generator after 7.8 · 10^12 steps. That state is not copied here but computed: t steps are a power of x modulo
x^607 - x^334 - 1, found by squaring.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LENGTH = 607
TAP = 273
STEPS = 7_800_000_000_000
LARGEST = 2**31 - 1
WORD = 2**64 - 1

Words = npt.NDArray[np.uint64]


def _chain(number: int) -> int:
    return number * 48271 % LARGEST


def _reduced(polynomial: Words) -> Words:
    rest = polynomial.copy()
    for power in range(len(rest) - 1, LENGTH - 1, -1):
        # Slices, since numpy wraps arrays silently and warns of scalars.
        rest[power - LENGTH : power - LENGTH + 1] += rest[power : power + 1]
        rest[power - TAP : power - TAP + 1] += rest[power : power + 1]
    return rest[:LENGTH]


def _start(number: int, shifts: tuple[int, int]) -> list[int]:
    values = []
    for place in range(-20, LENGTH):
        number = _chain(number)
        if place >= 0:
            value = number << shifts[0]
            number = _chain(number)
            value ^= number << shifts[1]
            number = _chain(number)
            values.append((value ^ number) & WORD)
    return values


def _slot(time: int) -> int:
    return (LENGTH - TAP - 1 - time) % LENGTH


@functools.cache
def stirred() -> tuple[int, ...]:
    """The generator's state after 7.8 · 10^12 steps from seed 1."""
    first = _start(1, (20, 10))
    history = np.array([first[_slot(time)] for time in range(LENGTH)], dtype=np.uint64)
    power = np.zeros(LENGTH, dtype=np.uint64)
    power[0] = 1
    shift = np.zeros(1, dtype=np.uint64)
    for bit in f"{STEPS:b}":
        power = _reduced(np.convolve(power, power))
        if bit == "1":
            power = _reduced(np.concatenate([shift, power]))
    state = [0] * LENGTH
    for offset in range(LENGTH):
        state[_slot(STEPS + offset - LENGTH)] = int((power * history).sum(dtype=np.uint64))
        power = _reduced(np.concatenate([shift, power]))
    return tuple(state)


class GoRandom:
    """math/rand of Go after ``rand.Seed(seed)``."""

    def __init__(self, seed: int) -> None:
        self._tap, self._feed = 0, LENGTH - TAP
        mixed = zip(_start(seed % LARGEST or 89482311, (40, 20)), stirred(), strict=True)
        self._state = [one ^ other for one, other in mixed]

    def word(self) -> int:
        """Uint64."""
        self._tap = (self._tap - 1) % LENGTH
        self._feed = (self._feed - 1) % LENGTH
        value = (self._state[self._feed] + self._state[self._tap]) & WORD
        self._state[self._feed] = value
        return value

    def below(self, bound: int) -> int:
        """Intn, for bounds below 2^31."""
        if bound & (bound - 1) == 0:
            return (self.word() >> 32 & LARGEST) & (bound - 1)
        most = LARGEST - 2**31 % bound
        value = self.word() >> 32 & LARGEST
        while value > most:
            value = self.word() >> 32 & LARGEST
        return value % bound

    def _quick(self, bound: int) -> int:
        """int31n, which Shuffle uses."""
        product = (self.word() >> 31 & 0xFFFFFFFF) * bound
        if product & 0xFFFFFFFF < bound:
            least = (2**32 - bound) % bound
            while product & 0xFFFFFFFF < least:
                product = (self.word() >> 31 & 0xFFFFFFFF) * bound
        return product >> 32

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """Shuffle, on a copy."""
        result = list(items)
        for place in range(len(result) - 1, 0, -1):
            other = self._quick(place + 1)
            result[place], result[other] = result[other], result[place]
        return result

    def permutation(self, size: int) -> list[int]:
        """Perm."""
        result = [0] * size
        for place in range(size):
            other = self.below(place + 1)
            result[place] = result[other]
            result[other] = place
        return result
