"""``python -m muster.simulator --cluster 10x8``: a simulated cluster as a process.

One line of JSON on standard output tells when it is ready: {"url": …, "kubeconfig": …}. SIGTERM and SIGINT stop it.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from muster.simulator.cluster import ClusterError, load_cluster
from muster.simulator.pod_plan import Plan
from muster.simulator.run import run_simulated_cluster


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 2 for a cluster that cannot be built or a port that is taken."""
    parser = argparse.ArgumentParser(
        prog="python -m muster.simulator", description="Run a simulated Kubernetes cluster."
    )
    parser.add_argument(
        "--cluster", default="10x8", help="a file, or shorthand such as 10x8, 100x8:4racks, 2x8:80:stock"
    )
    parser.add_argument("--port", type=int, default=0, help="of the API server; 0: any free port")
    parser.add_argument("--kubeconfig", type=Path, default=Path("kubeconfig"), help="where to write it")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per second")
    parser.add_argument("--metrics-port", type=int, help="serve the cards' DCGM metrics there; 0: any free port")
    parser.add_argument(
        "--run-seconds", type=float, help="how long pods run that do not say it by annotation; for ever when not given"
    )
    options = parser.parse_args(arguments)
    try:
        cluster = load_cluster(options.cluster)
        asyncio.run(
            run_simulated_cluster(
                cluster=cluster,
                port=options.port,
                kubeconfig_path=options.kubeconfig,
                speed=options.speed,
                plan=Plan([("*", {"run_seconds": options.run_seconds})] if options.run_seconds is not None else []),
                metrics_port=options.metrics_port,
                on_ready=_tell,
            )
        )
    except (ClusterError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _tell(ready: dict[str, Any]) -> None:
    print(json.dumps(ready), flush=True)


if __name__ == "__main__":
    sys.exit(main())
