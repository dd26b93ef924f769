"""Child processes that never outlive their parent, whatever ends it.

The child first asks the kernel to be signalled when its parent dies (Linux PR_SET_PDEATHSIG), checks that the parent is
still there, and only then becomes the wanted program. Spawn from the main thread: the kernel's signal follows the thread
that forked.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# The check closes the gap in which the parent was gone before the request. Systems without prctl go on without it.
WRAPPER = """
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)
except (OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(0)
os.execv(sys.argv[2], sys.argv[2:])
"""


def spawn(
    command: Sequence[str], *, log_path: Path, environ: Mapping[str, str] | None = None, stdout: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own; what it prints is appended to the log.

    Args:
        command: the program's absolute path and its arguments.
        log_path: where stderr (and stdout, unless given) go.
        environ: the whole environment; None: our own.
        stdout: a file descriptor or subprocess.PIPE.
    """
    with log_path.open("ab") as log:
        return subprocess.Popen(  # noqa: S603  (the caller names the program)
            [sys.executable, "-I", "-c", WRAPPER, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
            env=None if environ is None else dict(environ),
            start_new_session=True,
        )


async def end(process: "subprocess.Popen[bytes]", *, seconds: float = 10.0) -> int:
    """Ask the process to end, kill it when it takes too long, and return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
    return process.returncode
