"""Claims, volumes and storage classes: what binds pods to nodes through their storage."""

import msgspec

from muster.model.pods import NodeTerm, Requirement

SINGLE_POD = "ReadWriteOncePod"
"""Access mode of claims that one pod alone may use."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of classes whose volumes people make."""


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
    access_modes: tuple[str, ...] = ()
    size: int = 0
    """Bytes that it asks for."""
    volume_mode: str = "Filesystem"
    selector: tuple[Requirement, ...] = ()
    """Over labels of volumes."""
    fence: int = 0
    """Annotation ``muster.dev/fence``: the highest LEDGER sequence under which a node was selected for it, 0 when never."""

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
    storage_class: str = ""
    size: int = 0
    """Bytes."""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    labels: dict[str, str] = {}
    """Of volumes that are free, so that selectors of claims can be judged; {} of others."""
    free: bool = False
    """Available: it is bound to no claim, kept for none, and not being deleted."""
    claim: str = ""
    """``namespace/name`` of the claim that it is bound to or kept for, '' when there is none."""
    claim_uid: str = ""
    """'' when it is kept for any claim of that name."""


class StorageClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A StorageClass: when volumes of it are bound."""

    name: str
    waits_for_pod: bool = False
    """volumeBindingMode WaitForFirstConsumer."""
    provisioner: str = ""
    topologies: tuple[NodeTerm, ...] = ()
    """allowedTopologies, of which one must hold on a node; () when volumes can be made for every node."""

    @property
    def makes_volumes(self) -> bool:
        """Whether somebody makes a volume when a claim asks for one."""
        return self.provisioner not in {"", NO_PROVISIONER}
