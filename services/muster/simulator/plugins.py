"""Which device plugin runs on a node: by its card mode and, where the mode has several, by name."""

from muster.model.nodes import VGPU, CardMode
from muster.simulator.device_plugin import DevicePlugin, StockPlugin, VolcanoPlugin
from muster.simulator.reserved_plugin import ReservedPlugin
from muster.simulator.vgpu_plugin import VgpuPlugin


def plugin_for(mode: CardMode | None, name: str = "") -> DevicePlugin:
    """The plugin of a node's card mode; a node that declares none runs the stock one.

    Raises:
        ValueError: nothing simulates that mode, or that plugin.
    """
    if mode is CardMode.VOLCANO and name == VGPU:
        return VgpuPlugin()
    if name:
        raise ValueError(f"card_plugin: no device plugin {name!r} is simulated for card_mode {mode}; there is {VGPU!r}")
    if mode is None or mode is CardMode.STOCK:
        return StockPlugin()
    if mode is CardMode.VOLCANO:
        return VolcanoPlugin()
    if mode is CardMode.RESERVED:
        return ReservedPlugin()
    raise ValueError(f"card_mode: no device plugin is simulated for {mode.value!r}")
