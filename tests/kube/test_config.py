import asyncio
import os
import socket
import subprocess
import sys

import pytest

from muster.kube.config import ConfigurationError, connect
from muster.kube.errors import Unauthorized, Unavailable
from tests.kube.scripted_server import hangs, replies, resets, says, status_reply, streams


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "neither given", id="no cluster named"),
        pytest.param({"kubeconfig": "x", "in_cluster": True}, "both given", id="two clusters named"),
        pytest.param({"in_cluster": True, "context": "a"}, "context 'a'", id="a context without a kubeconfig"),
        pytest.param({"kubeconfig": "/nowhere/kubeconfig"}, "/nowhere/kubeconfig: no such file", id="no such file"),
        pytest.param({"in_cluster": True}, "in-cluster configuration: ", id="in a cluster that is none"),
        pytest.param({"in_cluster": True, "pool_size": 0}, "pool_size 0", id="no connections"),
    ],
)
async def test_a_configuration_that_cannot_work_says_why(options, message):
    with pytest.raises(ConfigurationError, match=message):
        await connect(user_agent="t", **options)


@pytest.mark.parametrize("content", ["", "[]", "clusters: 7", "apiVersion: v1\nkind: Config\n", "a: ["])
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path, content):
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        await connect(kubeconfig=path, user_agent="t")


async def test_an_unknown_context_is_an_error(server, tmp_path):
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises(ConfigurationError, match="other"):
        await connect(kubeconfig=path, context="other", user_agent="t")


async def test_the_environments_kubeconfig_is_never_used(server, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    with pytest.raises(ConfigurationError, match="neither given"):
        await connect(user_agent="t")


def test_importing_the_package_does_not_import_the_generated_client():
    # Its import takes a second, which commands that never connect must not pay.
    code = "import sys, muster.kube.reflector, muster.kube.lease; print('kubernetes_asyncio' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert output.stdout.strip() == "False"


async def test_requests_carry_the_user_agent_and_the_token(server, kube):
    server.script = [replies({"a": 1})]
    assert await kube.request("GET", "/api", timeout_seconds=5) == b'{"a": 1}'
    assert server.seen[0].headers["User-Agent"] == "muster-test"
    assert server.seen[0].headers["Authorization"] == "Bearer first"


async def test_a_401_reads_the_credentials_anew_and_repeats_the_request_once(server, kube, tmp_path):
    server.write_kubeconfig(tmp_path / "kubeconfig", token="second")
    server.script = [status_reply(401, "Unauthorized", "expired"), replies({})]
    await kube.request("POST", "/api/v1/pods", body={"a": 1}, timeout_seconds=5)
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer first", "Bearer second"]
    assert [seen.body for seen in server.seen] == [{"a": 1}, {"a": 1}]


async def test_a_second_401_is_an_error_and_credentials_are_not_read_in_a_loop(server, kube):
    server.forever = status_reply(401, "Unauthorized", "who are you")
    with pytest.raises(Unauthorized, match="who are you"):
        await kube.request("GET", "/api", timeout_seconds=5)
    assert len(server.seen) == 2


async def test_credentials_that_cannot_be_read_anew_say_so(server, kube, tmp_path):
    (tmp_path / "kubeconfig").unlink()
    server.forever = status_reply(401, "Unauthorized", "expired")
    with pytest.raises(Unauthorized, match="could not be read anew"):
        await kube.request("GET", "/api", timeout_seconds=5)


async def test_a_watch_stays_open_while_credentials_change(server, kube, tmp_path):
    first, second = b"one\n", b"two\n"
    server.script = [streams(first, second, pause=0.3), status_reply(401, "Unauthorized", "x"), replies({})]
    async with kube.stream("/watch", query=[], open_timeout_seconds=5, read_timeout_seconds=5) as chunks:
        received = await anext(chunks)
        server.write_kubeconfig(tmp_path / "kubeconfig", token="second")
        await kube.request("GET", "/api", timeout_seconds=5)
        async for chunk in chunks:
            received += chunk
    assert received == first + second


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        pytest.param(hangs(), "timeout", id="no answer in time"),
        pytest.param(resets(), "reset", id="a connection that is reset"),
        pytest.param(says("etcdserver: request timed out", status=500), "status", id="an error of the server"),
    ],
)
async def test_a_write_without_an_answer_has_an_unknown_outcome_and_is_not_repeated(server, kube, answer, cause):
    server.script = [answer]
    with pytest.raises(Unavailable) as caught:
        await kube.request("POST", "/api/v1/pods", body={}, timeout_seconds=0.3)
    assert (caught.value.cause, caught.value.unknown_outcome) == (cause, True)
    assert len(server.seen) == 1


async def test_a_refused_connection_certainly_changed_nothing(server, kube, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        path = server.write_kubeconfig(tmp_path / "other")
        async with await connect(kubeconfig=path, user_agent="t") as dead:
            with pytest.raises(Unavailable) as caught:
                await dead.request("POST", "/api/v1/pods", body={}, timeout_seconds=5)
    assert (caught.value.cause, caught.value.unknown_outcome) == ("refused", False)


async def test_a_pool_that_is_full_fails_in_time_without_having_sent_anything(server, tmp_path):
    server.script = [hangs()]
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with await connect(kubeconfig=path, user_agent="t", pool_size=1) as narrow:
        occupying = asyncio.create_task(narrow.request("GET", "/hang", timeout_seconds=30))
        while not server.seen:
            await asyncio.sleep(0.002)
        with pytest.raises(Unavailable) as caught:
            await narrow.request("POST", "/api/v1/pods", body={}, timeout_seconds=0.3)
        assert (caught.value.cause, caught.value.unknown_outcome) == ("refused", False)
        assert len(server.seen) == 1
        occupying.cancel()
        await asyncio.gather(occupying, return_exceptions=True)


async def test_answers_that_are_errors_give_their_connection_back(server, tmp_path):
    server.forever = status_reply(404, "NotFound", "no")
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with await connect(kubeconfig=path, user_agent="t", pool_size=1) as narrow:
        for _ in range(5):
            with pytest.raises(Exception, match="404"):
                await narrow.request("GET", "/api", timeout_seconds=2)


async def test_a_proxy_of_the_environment_is_used_unless_excluded(server, tmp_path, monkeypatch):
    address = server.url
    server.url = "http://cluster.invalid:6443"
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("HTTP_PROXY", address)
    monkeypatch.setenv("http_proxy", address)
    server.script = [replies({})]
    async with await connect(kubeconfig=path, user_agent="t") as proxied:
        await proxied.request("GET", "/api", timeout_seconds=5)
    assert server.seen[0].headers["Host"] == "cluster.invalid:6443"
    monkeypatch.setenv("NO_PROXY", "cluster.invalid")
    monkeypatch.setenv("no_proxy", "cluster.invalid")
    async with await connect(kubeconfig=path, user_agent="t") as direct:
        with pytest.raises(Unavailable):
            await direct.request("GET", "/api", timeout_seconds=5)
    assert len(server.seen) == 1
