"""Past usage in the weights, water-filling to the last part of a card, and shares that have stood for a while."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.memory import CoreMemory, PastUsage
from muster.decide.shares import Tree
from muster.decide.waiting.decayed import history_of, level_at, remembered
from muster.decide.waiting.stability import shares_noted, shares_stable
from muster.decide.waiting.weights import weighed
from muster.decide.water_filling import set_shares
from muster.model.policy import Fairness, Policy
from tests.decide.build import CARD, queue

HOUR = 3600.0
DECAYING = Policy(fairness=Fairness(half_life=HOUR))


def shares(queues, total, demand, history=None):
    tree = Tree(queues)
    set_shares(tree, {"gpu": total * CARD}, {name: {"gpu": cards * CARD} for name, cards in demand.items()}, history)
    return {name: one["gpu"] / CARD for name, one in tree.shares.items()}


def used(memory, now, **cards):
    tree = Tree([queue(name) for name in cards])
    for name, number in cards.items():
        tree.charge(name, {"gpu": number * CARD} if number else {})
    return remembered(memory, tree, ["gpu"], now, DECAYING)


class TestDecay:
    """level(now) by half-lives."""

    @pytest.mark.parametrize(
        ("past", "after", "level"),
        [
            pytest.param(PastUsage(level=8.0, used=0, at=0.0), HOUR, 4.0, id="half is left after a half-life"),
            pytest.param(PastUsage(level=0.0, used=8, at=0.0), HOUR, 4.0, id="half of what is used has come"),
            pytest.param(PastUsage(level=8.0, used=8, at=0.0), 5 * HOUR, 8.0, id="constant usage is its own average"),
            pytest.param(PastUsage(level=8.0, used=0, at=10.0), 5.0, 8.0, id="a clock that goes back changes nothing"),
        ],
    )
    def test_what_is_left(self, past, after, level):
        assert level_at(past, after, HOUR) == pytest.approx(level)

    def test_it_is_written_anew_only_when_usage_changes_and_forgotten_in_the_end(self):
        memory = used(CoreMemory(), 0.0, a=8)
        assert used(memory, 50.0, a=8) is memory
        after = used(memory, HOUR, a=0)
        assert after.usage_past["a"]["gpu"] == PastUsage(level=pytest.approx(4.0 * CARD), used=0, at=HOUR)
        assert used(after, 100 * HOUR, a=0).usage_past == {}

    def test_where_only_the_present_counts_nothing_is_remembered(self):
        tree = Tree([queue("a")])
        tree.charge("a", {"gpu": CARD})
        before = used(CoreMemory(), 0.0, a=8)
        assert remembered(before, tree, ["gpu"], 1.0, Policy()).usage_past == {}
        assert history_of(before, 1.0, Policy()) == {}

    @given(st.lists(st.tuples(st.floats(1, 10_000), st.integers(0, 64)), min_size=1, max_size=8), st.data())
    @settings(max_examples=50, deadline=None)
    def test_looking_in_between_changes_nothing(self, steps, data):
        once, often, now = CoreMemory(), CoreMemory(), 0.0
        for span, cards in steps:
            once, often = used(once, now, a=cards), used(often, now, a=cards)
            often = used(often, now + span * data.draw(st.floats(0, 1)), a=cards)
            now += span
        assert history_of(once, now, DECAYING) == history_of(often, now, DECAYING)


class TestWeights:
    """Past usage moves what is left over, and nothing else."""

    QUEUES = (queue("a", weight=1), queue("b", weight=1))

    def test_who_had_all_gets_a_quarter_of_what_is_left_and_the_other_the_rest(self):
        found = shares(self.QUEUES, 16, {"a": 16, "b": 16}, {"a": {"gpu": 16 * CARD}, "b": {}})
        assert found == {"a": 4, "b": 12}

    def test_equal_pasts_change_nothing(self):
        found = shares(self.QUEUES, 16, {"a": 16, "b": 16}, {"a": {"gpu": 5}, "b": {"gpu": 5}})
        assert found == {"a": 8, "b": 8}

    def test_what_is_deserved_is_never_touched(self):
        queues = (queue("a", deserved={"gpu": 12 * CARD}), queue("b", deserved={"gpu": 4 * CARD}))
        found = shares(queues, 16, {"a": 16, "b": 16}, {"a": {"gpu": 16 * CARD}, "b": {}})
        assert found == {"a": 12, "b": 4}

    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 100)), min_size=1, max_size=5))
    def test_weights_stay_above_nothing_and_in_the_order_of_what_was_had(self, pairs):
        weights = {str(number): weight for number, (weight, _) in enumerate(pairs)}
        had = {str(number): past for number, (_, past) in enumerate(pairs)}
        found = weighed(weights, had)
        assert all(0 < found[name] <= weights[name] for name in weights)
        order = sorted(
            (weight, past, found[name]) for (name, weight), past in zip(weights.items(), had.values(), strict=True)
        )
        for (weight, past, less), (other, more, least) in itertools.pairwise(order):
            assert weight != other or past == more or least < less


demands = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 40), st.integers(0, 12), st.integers(0, 50)), min_size=1, max_size=6
)


@given(demands, st.integers(0, 100))
@settings(max_examples=150, deadline=None)
def test_water_filling_gives_out_exactly_what_is_there_and_never_more_than_is_asked(rows, total):
    queues = [queue(str(n), weight=w, deserved={"gpu": d * CARD}) for n, (w, _, d, _) in enumerate(rows)]
    asked = {str(n): ask for n, (_, ask, _, _) in enumerate(rows)}
    had = {str(n): {"gpu": past} for n, (_, _, _, past) in enumerate(rows)}
    tree = Tree(queues)
    set_shares(tree, {"gpu": total * CARD}, {name: {"gpu": cards * CARD} for name, cards in asked.items()}, had)
    share = {name: one["gpu"] for name, one in tree.shares.items()}
    deserved = {str(n): Fraction(d * CARD) for n, (_, _, d, _) in enumerate(rows)}
    entitled = sum(min(deserved[name], asked[name] * CARD) for name in share)
    surplus = sum(max(Fraction(0), share[name] - deserved[name]) for name in share)
    wanted = sum(max(Fraction(0), asked[name] * CARD - deserved[name]) for name in share)
    assert surplus == max(Fraction(0), min(wanted, Fraction(total * CARD) - entitled))
    weights = {str(n): w for n, (w, *_) in enumerate(rows)}
    for name, got in share.items():
        assert deserved[name] <= got <= max(deserved[name], asked[name] * CARD)
    if any(past for *_, past in rows):
        return
    gains = {name: (got - deserved[name]) / weights[name] for name, got in share.items()}
    # Nobody who got something of the rest had more of it, by weight, than one who still lacks some.
    least = min((gains[name] for name, got in share.items() if got < asked[name] * CARD), default=None)
    assert least is None or all(gain <= max(least, 0) for gain in gains.values())


class TestStability:
    """A share that has just changed makes nobody leave."""

    POLICY = Policy(fairness=Fairness(stability=30.0))

    def noted(self, memory, now, **asked):
        tree = Tree([queue("a"), queue("b")])
        demand = {name: {"gpu": cards * CARD} for name, cards in asked.items()}
        set_shares(tree, {"gpu": 16 * CARD}, demand)
        return shares_noted(memory, tree, demand, now)

    def test_a_share_is_stable_when_it_has_stood_for_the_interval(self):
        memory = self.noted(CoreMemory(), 100.0, a=16, b=16)
        memory = self.noted(memory, 120.0, a=16, b=16)
        assert not shares_stable(memory, "a", 129.0, self.POLICY)
        assert shares_stable(memory, "a", 130.0, self.POLICY)

    def test_it_begins_again_when_the_share_changes(self):
        memory = self.noted(CoreMemory(), 100.0, a=16, b=16)
        memory = self.noted(memory, 140.0, a=16, b=4)
        assert not shares_stable(memory, "a", 141.0, self.POLICY)

    def test_jobs_that_come_and_go_in_a_queue_that_gets_all_change_nothing(self):
        memory = self.noted(CoreMemory(), 100.0, a=4, b=4)
        assert self.noted(memory, 140.0, a=3, b=4) is memory
        assert shares_stable(memory, "a", 140.0, self.POLICY)

    def test_a_queue_never_seen_is_not_and_without_an_interval_all_are(self):
        assert not shares_stable(CoreMemory(), "x", 1.0, self.POLICY)
        assert shares_stable(CoreMemory(), "x", 1.0, Policy(fairness=Fairness(stability=0.0)))
