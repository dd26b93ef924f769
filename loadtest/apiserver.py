"""How much the simulated API server costs beyond HTTP itself.

    python -m loadtest.apiserver [--pods 2000] [--in-flight 32] [--rounds 3] [--json FILE]

Two servers run in processes of their own: the simulated API server and a bare aiohttp server that reads the request and
answers a recorded body of the same size. The same kubernetes_asyncio client creates and binds the same pods against
both, in alternating rounds so that a noisy machine hits both alike. The figures are requests per second; the ratio
compares the medians.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from kubernetes_asyncio import client

NODES = 100
Pod = dict[str, Any]


def pod_body(name: str) -> Pod:
    """A pod as a training job's worker looks: about 3 kB once stored."""
    variables = [{"name": f"TRAINING_SETTING_{index}", "value": f"value-of-setting-{index}"} for index in range(16)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "trainer", "job-name": "bench", "batch.kubernetes.io/job-name": "bench"},
            "annotations": {"scheduling.k8s.io/group-name": "bench"},
        },
        "spec": {
            "schedulerName": "muster",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "trainer",
                    "image": "registry.example.com/trainer:v1",
                    "command": ["python", "-m", "train", "--steps", "1000"],
                    "env": variables,
                    "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


def binding_body(name: str, node: str) -> Pod:
    """The Binding a scheduler posts, with the annotations that hand over a card."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {"volcano.sh/gpu-index": "0"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def serve_simulated() -> None:
    """Run the simulated API server until killed."""
    from muster.simulator.server import SimulatedServer
    from muster.simulator.store import Store

    store = Store()
    for index in range(NODES):
        store.create("nodes", {"metadata": {"name": f"node-{index:03}"}})
    server = SimulatedServer(store)
    await server.start()
    print(server.url, flush=True)
    await asyncio.Event().wait()


async def serve_echo() -> None:
    """Run the bare server until killed: what is PUT to /recorded/create and /recorded/bind is what it answers."""
    recorded: dict[str, bytes] = {}

    async def record(request: web.Request) -> web.Response:
        recorded[request.match_info["what"]] = await request.read()
        return web.Response()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        what = "bind" if request.path.endswith("/binding") else "create"
        return web.Response(body=recorded[what], status=201, content_type="application/json")

    application = web.Application()
    application.router.add_put("/recorded/{what}", record)
    application.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def in_flight(jobs: Iterable[Callable[[], Awaitable[Any]]], limit: int) -> float:
    """Run the jobs, `limit` at a time; jobs per second."""
    waiting = iter(list(jobs))
    done = 0
    start = time.perf_counter()

    async def worker() -> None:
        nonlocal done
        for job in waiting:
            await job()
            done += 1

    await asyncio.gather(*(worker() for _ in range(limit)))
    return done / (time.perf_counter() - start)


async def measure(url: str, names: list[str], limit: int) -> tuple[float, float]:
    """Creates per second and binds per second through kubernetes_asyncio."""
    configuration = client.Configuration(host=url)
    configuration.connection_pool_maxsize = limit
    async with client.ApiClient(configuration) as api:
        core = client.CoreV1Api(api)

        def create(name: str) -> Callable[[], Awaitable[Any]]:
            return lambda: core.create_namespaced_pod("default", pod_body(name))

        def bind(index: int, name: str) -> Callable[[], Awaitable[Any]]:
            body = binding_body(name, f"node-{index % NODES:03}")
            return lambda: core.create_namespaced_pod_binding(name, "default", body, _preload_content=False)

        creates = await in_flight([create(name) for name in names], limit)
        binds = await in_flight([bind(index, name) for index, name in enumerate(names)], limit)
    return creates, binds


async def record_answers(simulated: str, echo: str) -> None:
    """Let the bare server answer what the simulated one answers."""
    async with aiohttp.ClientSession() as session:
        pods = f"{simulated}/api/v1/namespaces/default/pods"
        async with session.post(pods, json=pod_body("recorded")) as response:
            created = await response.read()
        async with session.post(f"{pods}/recorded/binding", json=binding_body("recorded", "node-000")) as response:
            bound = await response.read()
        for what, body in (("create", created), ("bind", bound)):
            async with session.put(f"{echo}/recorded/{what}", data=body) as response:
                response.raise_for_status()


async def start(what: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start one of the servers; its process and address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadtest.apiserver", "--serve", what, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    return process, line.decode().strip()


async def list_seconds(url: str) -> tuple[float, int]:
    """Seconds for one raw LIST of all pods, and its bytes."""
    async with aiohttp.ClientSession() as session:
        begin = time.perf_counter()
        async with session.get(f"{url}/api/v1/pods") as response:
            body = await response.read()
        return time.perf_counter() - begin, len(body)


async def run(*, pods: int, limit: int, rounds: int) -> dict[str, Any]:
    """The whole comparison."""
    simulated, simulated_url = await start("simulated")
    echo, echo_url = await start("echo")
    rates: dict[str, dict[str, list[float]]] = {
        "simulated": {"creates": [], "binds": []},
        "echo": {"creates": [], "binds": []},
    }
    try:
        await record_answers(simulated_url, echo_url)
        for number in range(rounds):
            names = [f"bench-{number}-{index}" for index in range(pods)]
            for what, url in (("echo", echo_url), ("simulated", simulated_url)):
                creates, binds = await measure(url, names, limit)
                rates[what]["creates"].append(creates)
                rates[what]["binds"].append(binds)
        seconds, size = await list_seconds(simulated_url)
    finally:
        for process in (simulated, echo):
            process.kill()
            await process.wait()
    medians = {what: {verb: statistics.median(found) for verb, found in verbs.items()} for what, verbs in rates.items()}
    return {
        "pods": pods,
        "in_flight": limit,
        "rounds": rounds,
        "requests_per_second": medians,
        "ratio": {verb: medians["simulated"][verb] / medians["echo"][verb] for verb in ("creates", "binds")},
        "list": {"pods": pods * rounds + 1, "seconds": seconds, "bytes": size},
    }


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    rates = result["requests_per_second"]
    lines = [f"{'':10}{'bare':>10}{'simulated':>12}{'ratio':>8}   requests/s, {result['in_flight']} in flight"]
    lines += [
        f"{verb:10}{rates['echo'][verb]:10.0f}{rates['simulated'][verb]:12.0f}{result['ratio'][verb]:8.2f}"
        for verb in ("creates", "binds")
    ]
    found = result["list"]
    lines.append(f"LIST of {found['pods']} pods: {found['seconds']:.3f} s, {found['bytes'] / 1e6:.1f} MB")
    return "\n".join(lines)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.apiserver", description=__doc__.partition("\n")[0])
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", choices=("simulated", "echo"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve_simulated() if options.serve == "simulated" else serve_echo())
        return
    result = asyncio.run(run(pods=options.pods, limit=options.in_flight, rounds=options.rounds))
    text = json.dumps(result, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n")
    print(text)
    print(table(result))


if __name__ == "__main__":
    main()
