import pytest

from muster.kube.config import connect
from tests.kube.scripted_server import serving


@pytest.fixture
async def server():
    async with serving() as running:
        yield running


@pytest.fixture
async def kube(server, tmp_path):
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    async with await connect(kubeconfig=path, user_agent="muster-test") as connected:
        yield connected
