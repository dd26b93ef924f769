"""What is wrong with a scenario although every field has the right type: names that refer to nothing, words that say nothing."""

from collections.abc import Sequence

from muster.decide.field_problems import field_problems
from muster.decide.spelling import meant, quantity_doubt
from muster.model.policy import Policy
from muster.model.quantity import QuantityError
from muster.scenarios.forms import AREAS, QUESTION, EvictedExpect, Expect, Quantity, QueueForm, Scenario, amount


def problems_of(scenario: Scenario) -> list[str]:
    """Every problem, in words."""
    problems: list[str] = []
    if scenario.area not in {*AREAS, QUESTION}:
        problems.append(f"area {scenario.area!r} is not one of {', '.join(AREAS)}{meant(scenario.area, AREAS)}")
    nodes = {node.name for node in scenario.nodes}
    queues = {queue.name for queue in scenario.queues}
    jobs = {job.job for job in (*scenario.running, *scenario.pending)}
    pending = {job.job for job in scenario.pending}
    problems += _twice([node.name for node in scenario.nodes], "node")
    problems += _twice([queue.name for queue in scenario.queues], "queue")
    for queue in scenario.queues:
        if queue.parent is not None and queue.parent not in queues:
            problems.append(f"queue {queue.name}: parent {queue.parent} does not exist")
        problems += _amount_problems(queue)
    for node in scenario.nodes:
        problems += _quantity_problems(f"node {node.name}", {"cpu": node.cpu, "memory": node.memory})
    for job in (*scenario.running, *scenario.pending):
        if job.queue not in queues:
            problems.append(f"job {job.job}: queue {job.queue} does not exist{meant(job.queue, queues)}")
        if not sum(task.replicas for task in job.tasks):
            problems.append(f"job {job.job}: has no pods; give it a task with replicas")
        for task in job.tasks:
            requests = {"cpu": task.requests.cpu, "memory": task.requests.memory}
            problems += _quantity_problems(f"job {job.job}: requests", requests)
            problems += [
                f"job {job.job}: node {name} does not exist{meant(name, nodes)}"
                for name in task.placed_on
                if name not in nodes
            ]
            for wish in (task.topology, job.topology):
                problems += [
                    f"job {job.job}: level {level} is not in topology_levels"
                    for level in (wish.required_level, wish.preferred_level)
                    if level and level not in scenario.topology_levels
                ]
    problems += _time_problems(scenario)
    for job in scenario.running:
        problems += [
            f"job {job.job}: it runs, so say where: node (or nodes, one for each replica) of role {task.role}"
            if not task.placed_on
            else f"job {job.job}: {len(task.placed_on)} nodes for {task.replicas} replicas of {task.role}"
            for task in job.tasks
            if len(task.placed_on) != task.replicas
        ]
    expect = scenario.expect
    named = {*expect.keeps_running, *expect.may_move}
    if expect.evicted is not None:
        evicted = expect.evicted
        named |= {*(evicted.exactly or ()), *(name for one in evicted.any_of for name in one), *evicted.no}
        named |= {*evicted.pods, *evicted.roles}
    named |= {name for group in (*expect.cards.share, *expect.cards.separate) for name in group}
    problems += [f"expect: job {name} does not exist" for name in sorted(named - jobs)]
    problems += [
        f"expect: job {name} is not pending"
        for name in sorted({*expect.placed, *expect.pending, *expect.starts_by} - pending)
    ]
    problems += [f"expect: node {name} does not exist" for name in sorted({*expect.cards.free_cards} - nodes)]
    return [*problems, *_empty_expectations(expect)]


def _time_problems(scenario: Scenario) -> list[str]:
    running = {job.job for job in scenario.running}
    problems = [f"policy: {wrong.field}: {wrong.message}" for wrong in field_problems(scenario.policy, Policy)]
    problems += [f"job {job.job}: it runs, so it cannot arrive later" for job in scenario.running if job.arrives]
    problems += [
        f"job {job.job}: a part of it runs already, so the rest cannot arrive later"
        for job in scenario.pending
        if job.arrives and job.job in running
    ]
    problems += [
        f"job {job.job}: it waits, so started and last_checkpoint say nothing"
        for job in scenario.pending
        if job.started or job.last_checkpoint
    ]
    problems += [
        f"job {job.job}: it waits, so may_lose says nothing" for job in scenario.pending if job.may_lose is not None
    ]
    return problems


def _empty_expectations(expect: Expect) -> list[str]:
    """Expectations that hold whatever happens: whoever wrote them meant something else."""
    problems = []
    for job, placed in expect.placed.items():
        says = placed.all or placed.count is not None or placed.min or placed.roles or placed.domains
        if not says:
            problems.append(
                f"expect.placed.{job} says nothing: give all: true, count (exactly so many pods) or min (at least so many); "
                "a job that must wait belongs into expect.pending"
            )
        problems += [
            f"expect.placed.{job}.roles.{role} says nothing: give all: true, count, min, on or same"
            for role, wanted in placed.roles.items()
            if not (wanted.all or wanted.count is not None or wanted.min or wanted.on or wanted.same)
        ]
    evicted = expect.evicted
    if evicted is not None and evicted == EvictedExpect():
        problems.append("expect.evicted says nothing: give none: true, exactly, any_of, count, pods, roles or not")
    return problems


def _quantity_problems(where: str, amounts: dict[str, Quantity]) -> list[str]:
    return [f"{where}: {name}: {doubt}" for name, value in amounts.items() if (doubt := quantity_doubt(str(value)))]


def _twice(names: Sequence[str], what: str) -> list[str]:
    return [f"{what} {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]


def _amount_problems(queue: QueueForm) -> list[str]:
    problems = []
    for kind in ("guarantee", "deserved", "capability"):
        for resource, value in getattr(queue, kind).items():
            try:
                amount(resource, value)
            except (ValueError, QuantityError) as error:
                problems.append(f"queue {queue.name}: {kind}.{resource}: {error}")
    return problems
