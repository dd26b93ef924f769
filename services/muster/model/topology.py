"""Topology: the names and label keys of levels, and HyperNodes.

    region > zone > core > block > rack > node      one hierarchy; what clouds and fabrics call a level is an alias of it
    clique                                          the NVLink domain, a dimension of its own

A level of the policy is a short name of this table (all its keys count), or any label key (which then stands alone).
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from muster.model.pods import Requirement

LEVEL_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "region": ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
        "zone": (
            "topology.muster.dev/zone",
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
        ),
        "core": (
            "topology.muster.dev/core",
            "topology.k8s.aws/network-node-layer-1",
            "network.topology.nvidia.com/core",
            "network.topology.nvidia.com/datacenter",
            "fabric.topograph.run/tier-2",
        ),
        "block": (
            "topology.muster.dev/block",
            "cloud.google.com/gce-topology-block",
            "topology.k8s.aws/network-node-layer-2",
            "network.topology.nvidia.com/spine",
            "fabric.topograph.run/tier-1",
        ),
        "rack": (
            "topology.muster.dev/rack",
            "cloud.google.com/gce-topology-subblock",
            "topology.k8s.aws/network-node-layer-3",
            "network.topology.nvidia.com/leaf",
            "network.topology.nvidia.com/block",
            "fabric.topograph.run/tier-0",
        ),
    }
)
"""Label keys of each level, the one that wins first."""

CLIQUE = "clique"
DIMENSION_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {CLIQUE: ("nvidia.com/gpu.clique", "accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator")}
)
"""Dimensions beside the hierarchy."""

NODE_NAMES = frozenset({"kubernetes.io/hostname", "cloud.google.com/gce-topology-host", "hostname", "host", "node"})
"""Names of the level at which every node is its own domain."""


def level_keys(entry: str) -> tuple[str, ...]:
    """The label keys of one level of the policy: a short name stands for all its aliases, any other text for itself."""
    return (entry, *LEVEL_KEYS.get(entry, ()))


def level_name(entry: str) -> str:
    """What people call a level: the label key without its prefix."""
    return entry.rpartition("/")[2]


def value_at(labels: Mapping[str, str], entry: str) -> str | None:
    """A node's value at a level of the policy: that of the first key it carries."""
    return next((labels[key] for key in level_keys(entry) if key in labels), None)


class HyperMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Members of a HyperNode, chosen one way: by exact name, by a regular expression on names, or by node labels."""

    hyper: bool = False
    """HyperNodes are meant, not nodes."""
    name: str = ""
    pattern: str = ""
    labels: tuple[Requirement, ...] = ()
    by_labels: bool = False


class HyperNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topology.volcano.sh HyperNode: a domain of the network. A lower tier is closer."""

    name: str
    tier: int
    tier_name: str = ""
    members: tuple[HyperMember, ...] = ()
