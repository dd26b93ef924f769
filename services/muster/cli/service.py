"""`muster service NAME`: one service in the foreground, configured by MUSTER_* variables."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from muster.cli.errors import BAD_INPUT, CommandError
from muster.runtime import ServiceConfig, ServiceContext, run_service
from muster.runtime.config import LEASE_VARIABLES, VARIABLES, ConfigError
from muster.runtime.policy_file import PolicyError

NAMES = ("watcher", "controller", "scheduler", "preemptor", "autoscaler", "reservation")

EPILOG = f"""example:
  MUSTER_NATS_URL=nats://127.0.0.1:4222 MUSTER_KUBECONFIG=./kubeconfig muster service scheduler

settings (environment): {", ".join((*VARIABLES.values(), *LEASE_VARIABLES.values()))}
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "service",
        help="run one service in the foreground",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=NAMES, help="which service")
    parser.add_argument("--json", action="store_true", help="logs as JSON lines (the default outside a terminal)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the service until it is told to stop."""
    try:
        config = ServiceConfig.from_environment(os.environ)
    except ConfigError as error:
        raise CommandError(str(error), code=BAD_INPUT) from error
    if config.kubeconfig is None and not config.in_cluster:
        raise CommandError(
            "which cluster? Set MUSTER_KUBECONFIG to a kubeconfig file, or MUSTER_IN_CLUSTER=true inside a pod.\n"
            "KUBECONFIG is not read, so that no cluster is touched by accident.",
            code=BAD_INPUT,
        )
    main: Callable[[ServiceContext], Awaitable[None]] = import_module(f"muster.{arguments.name}.service").main
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run_service(arguments.name, main, config))
    except PolicyError as error:
        raise CommandError(str(error), code=BAD_INPUT) from error
