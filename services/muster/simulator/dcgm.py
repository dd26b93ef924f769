"""What NVIDIA's DCGM exporter would say about the simulated cards, in Prometheus' text format under /metrics.

    DCGM_FI_DEV_GPU_UTIL   percent of the core kept busy: each holder's part times its plan's `utilisation`
    DCGM_FI_DEV_FB_USED    MiB in use: what the holders were given
    DCGM_FI_DEV_FB_FREE    MiB left

Labels as the exporter's: gpu (index), UUID, device, modelName, Hostname, and the pod (namespace, pod) when a single one holds the card.
"""

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from muster.simulator.cards import CardState
from muster.simulator.kubelet import Kubelets

LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", "namespace", "pod")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class CardExporter:
    """A collector over all cards and the HTTP server that shows it."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._runner: web.AppRunner | None = None
        self.url = ""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The three gauges, read at the moment they are asked for; lost cards are absent."""
        busy = GaugeMetricFamily("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", labels=LABELS)
        used = GaugeMetricFamily("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", labels=LABELS)
        free = GaugeMetricFamily("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", labels=LABELS)
        for node in self._kubelets.nodes:
            model = self._kubelets.model(node)
            for state in self._kubelets.cards(node):
                if not state.healthy:
                    continue
                labels = _labels(node, model, state)
                busy.add_metric(
                    labels, min(100.0, sum(self._kubelets.busy(node, hold) for hold in state.holds.values()))
                )
                used.add_metric(labels, state.memory_used_mib)
                free.add_metric(labels, state.card.memory_mib - state.memory_used_mib)
        yield from (busy, used, free)

    async def start(self, host: str, port: int) -> None:
        """Serve; OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        address = self._runner.addresses[0]
        self.url = f"http://{address[0]}:{address[1]}/metrics"

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE})


def _labels(node: str, model: str, state: CardState) -> tuple[str, ...]:
    holders = [hold.pod for hold in state.holds.values()]
    namespace, _, pod = holders[0].partition("/") if len(holders) == 1 else ("", "", "")
    index = str(state.card.index)
    return (index, state.card.uuid, f"nvidia{index}", model, node, namespace, pod)
