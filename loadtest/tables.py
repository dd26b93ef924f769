"""Tables for docs/benchmarks.md, written between markers; the machine and the versions that a measurement ran with."""

import os
import platform
import resource
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between the markers of this measurement; without markers it is added at the end."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before = (
        path.read_text()
        if path.exists()
        else "# Benchmarks\n\nEvery table here is written by the command named above it.\n"
    )
    block = f"{begin}\n{text.strip()}\n{end}"
    if begin in before and end in before:
        head, rest = before.split(begin, 1)
        after = head + block + rest.split(end, 1)[1]
    else:
        after = before.rstrip("\n") + "\n\n" + block + "\n"
    path.write_text(after)


def machine() -> str:
    """One line: processor, cores, memory, load, Python and the packages that matter."""
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = []
    for name in ("ortools", "numpy", "msgspec"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            packages.append(f"no {name}")
    return (
        f"{model}, {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} at the end), {memory:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {', '.join(packages)}"
    )


def peak_mebibytes() -> int:
    """The most resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(part * 1000) * len(ordered) // 1000) - 1))]
