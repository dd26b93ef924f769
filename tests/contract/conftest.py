"""Fixtures of the contract suite: the same cases on the simulated server and on the cluster that KUBECONFIG names."""

import os
from collections.abc import AsyncIterator

import pytest

from tests.contract.api import Api, connect

SERVERS = [
    pytest.param("simulated", id="simulated server"),
    *([pytest.param("cluster", id="cluster of KUBECONFIG")] if os.environ.get("KUBECONFIG") else []),
]
"""Without KUBECONFIG there is one server; `./dev test` says so."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/contract/" in item.path.as_posix():
            item.add_marker(pytest.mark.contract)


@pytest.fixture(
    scope="session",
    params=SERVERS,
)
async def kubeconfig(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Path of a kubeconfig with admin rights."""
    if request.param == "cluster":
        yield os.environ["KUBECONFIG"]
        return
    from muster.simulator.run import SimulatedCluster

    async with SimulatedCluster("2x8") as cluster:
        yield str(cluster.kubeconfig_path)


@pytest.fixture(scope="session")
async def api(kubeconfig: str) -> AsyncIterator[Api]:
    """A client with a namespace of its own, which is removed at the end together with all else it made."""
    async with connect(kubeconfig) as client:
        yield client
