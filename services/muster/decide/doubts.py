"""Annotations that look misspelt or cannot be read: they count for nothing, so whoever wrote them must hear of it."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from muster.decide.linting import ANNOTATIONS
from muster.decide.projection.metadata import OWN_PREFIXES
from muster.decide.spelling import likely
from muster.decide.timing import timing_problems
from muster.model.workloads import Workload

WRITTEN_BY_PLUGINS = frozenset({"volcano.sh/vgpu-node"})
NEAR = 0.9
"""So alike a name must be to a known one; our own marks, which nobody writes by hand, are less alike to any."""


def annotation_doubts(*annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Each doubt once, in words."""
    return tuple(dict.fromkeys(doubt for marks in annotations for doubt in _doubts(marks)))


def templates_marks(job: Workload) -> Iterable[Mapping[str, str]]:
    """The annotations that a job's templates give to its pods."""
    templates = [job.spec.get("template")]
    tasks = job.spec.get("tasks")
    templates += (
        [task.get("template") for task in tasks if isinstance(task, Mapping)] if isinstance(tasks, list) else []
    )
    for template in templates:
        metadata = template.get("metadata") if isinstance(template, Mapping) else None
        marks = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        if isinstance(marks, Mapping):
            yield {str(name): str(value) for name, value in marks.items()}


def _doubts(marks: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(marks):
        if not name.startswith(OWN_PREFIXES) or name in ANNOTATIONS or name in WRITTEN_BY_PLUGINS:
            continue
        found = _meant(name)
        if found:
            yield f"there is no annotation {name}; did you mean {found}?"
    for problem in timing_problems(marks, path="annotation "):
        yield f"{problem.field.removeprefix('annotation ').strip('[]').strip(chr(34))}: {problem.message}"


@lru_cache(maxsize=1024)
def _meant(name: str) -> str:
    """Every pod of a gang has the same marks: each name is compared once."""
    return likely(name, ANNOTATIONS, cutoff=NEAR)
