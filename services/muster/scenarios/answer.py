"""What Muster would do, of a settled outcome: as data for programs and as lines for people.

placed   job → node → cards           the job's pods that were started
pending  job → code, message, numbers why its other pods wait
evicted  job → pods, cause, for whom  pods that left for good, or wait again
moved    job → from, to, for whom     pods that left and stand elsewhere
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from muster.model.gangs import Member, MemberState
from muster.model.pods import CardUse
from muster.scenarios.runner import Eviction, Outcome

WHY = {"preempt": "lower priority", "reclaim": "its queue is above its share", "consolidate": "to join free cards"}


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job, or the rest of one, waits."""

    code: str
    message: str
    numbers: dict[str, int | str]
    pods: int


class Evicted(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of a job that left and were not started again."""

    pods: int
    of: int
    nodes: tuple[str, ...]
    causes: tuple[str, ...]
    made_room_for: tuple[str, ...]


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that left and stands again."""

    pod: str
    source: str
    target: str
    cards: tuple[int, ...]
    cause: str
    made_room_for: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. Jobs are named as in the file."""

    placed: dict[str, dict[str, tuple[int, ...]]]
    pods: dict[str, dict[str, int]]
    """Job → node → pods started there."""
    pending: dict[str, Waiting]
    evicted: dict[str, Evicted]
    moved: dict[str, tuple[Moved, ...]]
    rounds: int


def answer(outcome: Outcome) -> Answer:
    """The outcome as data."""
    waiting = [job.job for job in outcome.scenario.pending]
    placed = {job: _by_node(outcome.placed(job)) for job in waiting if outcome.placed(job)}
    pods = {job: dict(Counter(str(m.node) for m in outcome.placed(job))) for job in placed}
    evicted, moved = _departed(outcome)
    return Answer(
        placed=placed,
        pods=pods,
        pending=_waiting(outcome, dict.fromkeys([*waiting, *evicted])),
        evicted=evicted,
        moved=moved,
        rounds=outcome.rounds,
    )


def _by_node(members: Sequence[Member]) -> dict[str, tuple[int, ...]]:
    cards: dict[str, set[int]] = {str(node): set() for node in sorted({str(member.node) for member in members})}
    for member in members:
        cards[str(member.node)].update(int(use.index) for use in member.cards)
    return {node: tuple(sorted(indexes)) for node, indexes in cards.items()}


def _waiting(outcome: Outcome, jobs: Iterable[str]) -> dict[str, Waiting]:
    found = {}
    for job in jobs:
        rest = sum(member.state is MemberState.WAITING for member in outcome.members(job))
        reason = outcome.reasons.get(job)
        if rest:
            found[job] = Waiting(
                code=reason.code if reason is not None else "",
                message=reason.message if reason is not None else "the round told no reason",
                numbers=dict(reason.numbers) if reason is not None else {},
                pods=rest,
            )
    return found


def _departed(outcome: Outcome) -> tuple[dict[str, Evicted], dict[str, tuple[Moved, ...]]]:
    first = {(one.job, one.pod): one for one in reversed(outcome.evictions)}
    lost: dict[str, list[Eviction]] = {}
    moved: dict[str, list[Moved]] = {}
    for (job, pod), one in sorted(first.items()):
        again = [m for m in outcome.members(job) if m.name == pod and m.state is MemberState.BOUND]
        if not again:
            lost.setdefault(job, []).append(one)
            continue
        moved.setdefault(job, []).append(
            Moved(
                pod=pod,
                source=one.node,
                target=str(again[0].node),
                cards=tuple(sorted(int(use.index) for use in again[0].cards)),
                cause=one.cause,
                made_room_for=one.made_room_for,
            )
        )
    evicted = {
        job: Evicted(
            pods=len(ones),
            of=len(outcome.members(job)),
            nodes=tuple(sorted({one.node for one in ones})),
            causes=tuple(sorted({one.cause for one in ones})),
            made_room_for=tuple(sorted({one.made_room_for for one in ones})),
        )
        for job, ones in lost.items()
    }
    return evicted, {job: tuple(ones) for job, ones in moved.items()}


def lines(outcome: Outcome) -> list[str]:
    """The outcome for people: a job a paragraph, pending jobs first, as they stand in the file."""
    told = answer(outcome)
    jobs = list(dict.fromkeys([*(job.job for job in outcome.scenario.pending), *told.evicted, *told.moved]))
    width = max((len(job) for job in jobs), default=0)
    text: list[str] = []
    for job in jobs:
        sentences = list(_sentences(outcome, told, job))
        text += [f"  {job if not number else '':{width}}  {sentence}" for number, sentence in enumerate(sentences)]
    return text


def _sentences(outcome: Outcome, told: Answer, job: str) -> Iterable[str]:
    asked = sum(task.replicas for one in outcome.scenario.pending if one.job == job for task in one.tasks)
    placed = outcome.placed(job)
    if placed:
        yield f"starts {len(placed)} of {_pods(asked)}: {'; '.join(_places(placed))}"
        for other, gone in told.evicted.items():
            if job in gone.made_room_for:
                yield f"for it {other} loses {gone.pods} of {_pods(gone.of)} ({_causes(gone.causes)})"
        for other, moves in told.moved.items():
            mine = [move for move in moves if move.made_room_for == job]
            if mine:
                yield f"for it {other} moves: {'; '.join(f'{move.pod} from {move.source} to {move.target}' for move in mine)}"
    lost = told.evicted.get(job)
    if lost is not None:
        yield (
            f"loses {lost.pods} of {_pods(lost.of)} on {', '.join(lost.nodes)} "
            f"for {', '.join(lost.made_room_for)} ({_causes(lost.causes)})"
        )
    for move in told.moved.get(job, ()):
        yield (
            f"moves {move.pod} from {move.source} to {move.target}{_numbers(move.cards)} "
            f"for {move.made_room_for} ({_causes([move.cause])})"
        )
    if (wait := told.pending.get(job)) is not None:
        rest = f"{_pods(wait.pods)} " if placed or lost is not None else ""
        verb = "wait" if rest and wait.pods != 1 else "waits"
        yield f"{rest}{verb}: {wait.message}{f' ({wait.code})' if wait.code else ''}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _causes(causes: Iterable[str]) -> str:
    return "; ".join(WHY.get(cause, cause) for cause in causes)


def _places(members: Sequence[Member]) -> list[str]:
    found = []
    for node in sorted({str(member.node) for member in members}):
        mine = [member for member in members if member.node == node]
        whole = sorted(int(use.index) for member in mine for use in member.cards if use.whole)
        shares = [_share(use) for member in mine for use in member.cards if not use.whole]
        counted = f" ({_pods(len(mine))})" if len(mine) > 1 else ""
        shared = f" {', '.join(shares)}" if shares else ""
        found.append(f"{node}{counted}{_numbers(whole)}{shared}")
    return found


def _share(use: CardUse) -> str:
    amounts = [f"{use.memory_mib} MiB" if use.memory_mib else "", f"{use.core_percent} %" if use.core_percent else ""]
    return f"a share of card {use.index} ({', '.join(amount for amount in amounts if amount)})"


def _numbers(indexes: Sequence[int]) -> str:
    """`` cards 0-3, 7``; '' for none."""
    if not indexes:
        return ""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    text = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return f" {'card' if len(indexes) == 1 else 'cards'} {text}"
