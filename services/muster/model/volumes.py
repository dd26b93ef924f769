"""Claims, volumes and storage classes: what binds pods to nodes through their storage."""

import msgspec

from muster.model.pods import NodeTerm


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    volume: str = ""
    """The PersistentVolume that it is bound to, '' while it is bound to none."""
    bound: bool = False
    storage_class: str = ""
    """'' when it names none; the default class is written in by the API server."""
    selected_node: str = ""
    """Annotation ``volume.kubernetes.io/selected-node``: a volume is being made for this node."""
    terminating: bool = False
    lost: bool = False
    """Its volume is gone."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Volume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A PersistentVolume: the nodes that can reach it."""

    name: str
    resource_version: str = ""
    nodes: tuple[NodeTerm, ...] = ()
    """Terms of its required node affinity, of which one must hold; () when every node reaches it."""


class StorageClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A StorageClass: when volumes of it are bound."""

    name: str
    waits_for_pod: bool = False
    """volumeBindingMode WaitForFirstConsumer."""
