"""Expected against actual: every sentence of a scenario's `expect` that does not hold."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from muster.model.gangs import Member, MemberState
from muster.scenarios.building import NAMESPACE
from muster.scenarios.format import EvictedExpect, PlacedExpect, RoleExpect
from muster.scenarios.runner import Outcome


def check(outcome: Outcome) -> list[str]:
    """What differs, in words; empty when the scenario passes."""
    expect = outcome.scenario.expect
    wrong: list[str] = []
    for job, placed in expect.placed.items():
        wrong += _placed(outcome, job, placed)
    for job in expect.pending:
        count = len(outcome.placed(job))
        if count:
            wrong.append(f"{job}: expected to wait, {count} pods placed on {_where(outcome.placed(job))}")
    total = sum(len(outcome.placed(job.job)) for job in outcome.scenario.pending)
    if expect.total_placed is not None and total != expect.total_placed:
        wrong.append(f"expected {expect.total_placed} pods placed in all, actual {total}")
    wrong += _running(outcome)
    if expect.evicted is not None:
        wrong += _evicted(outcome, expect.evicted)
    if expect.may_move:
        lost = {eviction.job for eviction in outcome.evictions} - set(expect.may_move)
        if lost:
            wrong.append(f"only {', '.join(expect.may_move)} may move; {', '.join(sorted(lost))} lost pods")
    for job, second in expect.starts_by.items():
        at = outcome.started.get(job)
        if at is None or at > second:
            actual = "it never did" if at is None else f"actual {at:g}"
            wrong.append(f"{job}: expected to start by second {second}, {actual}")
    wrong += _cards(outcome)
    wrong += [f"not settled: {change}" for change in outcome.restless]
    return wrong


def _where(members: Sequence[Member]) -> str:
    return ", ".join(sorted(str(member.node) for member in members))


def _labels(outcome: Outcome, members: Sequence[Member], level: str) -> set[str]:
    labels = {node.name: node.labels for node in outcome.scenario.nodes}
    return {labels[str(member.node)].get(level, f"({member.node} has no {level})") for member in members}


def _placed(outcome: Outcome, job: str, expect: PlacedExpect) -> list[str]:
    members = outcome.placed(job)
    pending = sum(task.replicas for one in outcome.scenario.pending if one.job == job for task in one.tasks)
    wrong = _counted(outcome, job, members, expect, pending)
    for level, count in expect.domains.items():
        found = _labels(outcome, members, level)
        if len(found) != count:
            wrong.append(f"{job}: expected {count} values of {level}, actual {', '.join(sorted(found)) or 'none'}")
    for role, wanted in expect.roles.items():
        mine = [member for member in members if member.role == role]
        replicas = sum(
            task.replicas
            for one in outcome.scenario.pending
            if one.job == job
            for task in one.tasks
            if task.role == role
        )
        wrong += _counted(outcome, f"{job} role {role}", mine, wanted, replicas)
    return wrong


def _counted(
    outcome: Outcome, name: str, members: Sequence[Member], expect: PlacedExpect | RoleExpect, pending: int
) -> list[str]:
    wrong = []
    reason = outcome.reasons.get(name.partition(" ")[0])
    because = f" ({reason.code}: {reason.message})" if reason is not None else ""
    if expect.all and len(members) != pending:
        wrong.append(f"{name}: expected all {pending} pods placed, actual {len(members)}{because}")
    if expect.count is not None and len(members) != expect.count:
        wrong.append(f"{name}: expected {expect.count} pods placed, actual {len(members)}{because}")
    if expect.min is not None and len(members) < expect.min:
        wrong.append(f"{name}: expected at least {expect.min} pods placed, actual {len(members)}{because}")
    elsewhere = [member for member in members if expect.on and member.node not in expect.on]
    if elsewhere:
        wrong.append(f"{name}: expected on {', '.join(expect.on)}, actual {_where(members)}")
    if expect.same and len(_labels(outcome, members, expect.same)) > 1:
        found = ", ".join(sorted(_labels(outcome, members, expect.same)))
        wrong.append(f"{name}: expected one {expect.same}, actual {found}")
    return wrong


def _running(outcome: Outcome) -> list[str]:
    gangs = {gang.key.partition("/")[2]: gang for gang in outcome.snapshot.gangs}
    wrong = [
        f"{job}: expected to keep running, {gangs[job].counted} pods of minimum {gangs[job].minimum} run"
        for job in outcome.scenario.expect.keeps_running
        if not gangs[job].complete
    ]
    wrong += [
        f"{gang.key.partition('/')[2]}: left below its minimum, {gang.counted} pods of {gang.minimum} run"
        for gang in outcome.snapshot.gangs
        if any(m.state is MemberState.BOUND for m in gang.members)
        and not gang.complete
        and not _born_broken(outcome, gang.key)
    ]
    return wrong


def _born_broken(outcome: Outcome, key: str) -> bool:
    """Whether the job ran below its minimum at the start already."""
    job = key.removeprefix(f"{NAMESPACE}/")
    running = [one for one in outcome.scenario.running if one.job == job and not one.terminating]
    return bool(running) and sum(t.replicas for one in running for t in one.tasks) < (running[0].min_available or 0)


def _evicted(outcome: Outcome, expect: EvictedExpect) -> list[str]:
    movers = set(outcome.scenario.expect.may_move)
    lost = Counter(eviction.job for eviction in outcome.evictions if eviction.job not in movers)
    by_role: dict[str, Counter[str]] = defaultdict(Counter)
    for eviction in outcome.evictions:
        by_role[eviction.job][eviction.role] += 1
    actual = ", ".join(f"{job} ({count})" for job, count in sorted(lost.items())) or "nobody"
    wrong = []
    if expect.none and lost:
        wrong.append(f"expected nobody evicted, actual {actual}")
    if expect.exactly is not None and set(lost) != set(expect.exactly):
        wrong.append(f"expected evicted {', '.join(expect.exactly) or 'nobody'}, actual {actual}")
    if expect.any_of and not any(set(lost) == set(group) for group in expect.any_of):
        groups = " or ".join("{" + ", ".join(group) + "}" for group in expect.any_of)
        wrong.append(f"expected evicted {groups}, actual {actual}")
    if expect.count is not None and sum(lost.values()) != expect.count:
        wrong.append(f"expected {expect.count} pods evicted, actual {actual}")
    wrong += [f"{job}: expected not evicted" for job in expect.no if lost[job]]
    total = {
        job.job: sum(task.replicas for task in job.tasks) for job in outcome.scenario.running if not job.terminating
    }
    named = [*(expect.exactly or ()), *(job for job in lost if any(job in group for group in expect.any_of))]
    for job in dict.fromkeys([*named, *expect.pods]):
        wanted = expect.pods.get(job, "all" if job not in expect.roles else sum(expect.roles[job].values()))
        count = total.get(job, 0) if wanted == "all" else int(wanted)
        if lost[job] != count:
            wrong.append(f"{job}: expected {wanted} pods evicted, actual {lost[job]} of {total.get(job, 0)}")
    for job, roles in expect.roles.items():
        for role, count in roles.items():
            if by_role[job][role] != count:
                wrong.append(f"{job} role {role}: expected {count} pods evicted, actual {by_role[job][role]}")
    return wrong


def _cards(outcome: Outcome) -> list[str]:
    expect = outcome.scenario.expect.cards
    jobs_on: dict[tuple[str, int], set[str]] = defaultdict(set)
    core: dict[tuple[str, int], int] = defaultdict(int)
    memory: dict[tuple[str, int], int] = defaultdict(int)
    for gang in outcome.snapshot.gangs:
        for member in gang.members:
            if member.state not in {MemberState.BOUND, MemberState.LEAVING}:
                continue
            for use in member.cards:
                key = (str(member.node), int(use.index))
                jobs_on[key].add(gang.key.partition("/")[2])
                core[key] += use.core_percent
                memory[key] += use.memory_mib
    size = {node.name: node.gpu_memory_mib for node in outcome.scenario.nodes}
    wrong = [
        f"expected {', '.join(group)} on one card, actual {_cards_text(jobs_on)}"
        for group in expect.share
        if not any(set(group) <= jobs for jobs in jobs_on.values())
    ]
    wrong += [
        f"expected {', '.join(group)} on different cards, actual {_cards_text(jobs_on)}"
        for group in expect.separate
        if any(len(set(group) & jobs) > 1 for jobs in jobs_on.values())
    ]
    limit = 100 if expect.max_percent is None else expect.max_percent
    for key in sorted(jobs_on):
        percent = max(core[key], -(-100 * memory[key] // size[key[0]]) if size[key[0]] else 0)
        if percent > limit:
            wrong.append(f"card {key[1]} of {key[0]}: at {percent} percent, at most {limit} expected")
    for node, count in expect.free_cards.items():
        cards = next(one.gpus for one in outcome.scenario.nodes if one.name == node)
        free = cards - sum(1 for key in jobs_on if key[0] == node)
        if free != count:
            wrong.append(f"{node}: expected {count} untouched cards, actual {free}")
    return wrong


def _cards_text(jobs_on: dict[tuple[str, int], set[str]]) -> str:
    return "; ".join(f"{node}[{card}]: {', '.join(sorted(jobs))}" for (node, card), jobs in sorted(jobs_on.items()))
