"""`muster up`: a whole Muster on this machine, with embedded NATS, on a simulated cluster or on a real one."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from muster.bus.errors import UnsuitableServerError
from muster.cli.connection import STATE_DIR, add_json
from muster.cli.errors import BAD_INPUT, CommandError
from muster.cli.stack import Stack, StackError, find_address
from muster.runtime.policy_file import PolicyError, load_policy
from muster.simulator.cluster import ClusterError, load_cluster

EPILOG = """examples:
  muster up --simulate 10x8 --api-port 6443      10 nodes of 8 cards; then: kubectl --kubeconfig .muster/kubeconfig get nodes
  muster up --simulate cluster.yaml              nodes as a file states them
  muster up --kubeconfig ~/.kube/config          on a real cluster (its CRDs must be installed)

Ctrl-C stops everything it started.
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "up",
        help="run everything on this machine",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--simulate", metavar="CLUSTER", help="NODESxCARDS, or a cluster file")
    where.add_argument("--kubeconfig", type=Path, help="a real cluster (KUBECONFIG itself is never read)")
    parser.add_argument("--api-port", type=port, default=0, help="port of the simulated API server (any free one)")
    parser.add_argument("--nats-port", type=port, default=0, help="port of NATS (any free one)")
    parser.add_argument(
        "--run-seconds",
        type=float,
        default=60.0,
        help="simulated pods run so long, unless their annotation simulator.muster.dev/run-seconds says otherwise "
        "(default: %(default)g; 0: until they are deleted)",
    )
    parser.add_argument("--policy", type=Path, help="policy.yaml")
    parser.add_argument(
        "--state-dir", type=Path, default=STATE_DIR, help="where everything lives (default: %(default)s)"
    )
    add_json(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Start, say how to use it, and wait for Ctrl-C."""
    if arguments.kubeconfig is not None and not arguments.kubeconfig.is_file():
        raise CommandError(f"--kubeconfig {arguments.kubeconfig}: no such file", code=BAD_INPUT)
    if arguments.simulate is not None:
        try:
            load_cluster(arguments.simulate)
        except ClusterError as error:
            raise CommandError(f"--simulate {arguments.simulate}: {error}", code=BAD_INPUT) from error
    if arguments.policy is not None:
        try:
            load_policy(arguments.policy)
        except PolicyError as error:
            raise CommandError(str(error), code=BAD_INPUT) from error
    if find_address(arguments.state_dir) is not None:
        raise CommandError(
            f"a Muster runs already with {arguments.state_dir}; name another --state-dir", code=BAD_INPUT
        )
    environ = {}
    if arguments.policy is not None:
        environ["MUSTER_POLICY"] = str(arguments.policy.resolve())
    console = Console(stderr=True, highlight=False)
    stack = None
    try:
        stack = Stack(
            arguments.state_dir,
            cluster=arguments.simulate or "",
            kubeconfig=arguments.kubeconfig.resolve() if arguments.kubeconfig is not None else None,
            api_port=arguments.api_port,
            nats_port=arguments.nats_port,
            environ=environ,
            simulator_arguments=("--run-seconds", str(arguments.run_seconds)) if arguments.run_seconds else (),
        )
        with console.status("starting NATS, the cluster and the services"):
            await stack.start()
    except (StackError, UnsuitableServerError) as error:
        if stack is not None:
            await stack.stop()
        raise CommandError(str(error)) from error
    try:
        _say(stack, as_json=arguments.json)
        await interrupted()
    finally:
        with console.status("stopping"):
            await stack.stop()
    console.print("stopped; nothing is left running")
    return 0


def port(text: str) -> int:
    """A port number, for argparse."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 (any free one) to 65535")
    return int(text)


def _say(stack: Stack, *, as_json: bool) -> None:
    address = stack.address
    if as_json:
        print(json.dumps(msgspec.to_builtins(address)))
        sys.stdout.flush()
        return
    print(f"NATS        {address.nats_url}")
    print(
        f"Kubernetes  {address.api_url or 'as the kubeconfig says'}   kubectl --kubeconfig {address.kubeconfig} get nodes"
    )
    print("try         muster submit --gpus 1 --image registry.example.com/x:1 -- train")
    print("            muster get")
    print("Ctrl-C stops everything.")
    sys.stdout.flush()


async def interrupted() -> None:
    """Return at SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await stop.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
