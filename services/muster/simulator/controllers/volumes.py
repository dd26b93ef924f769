"""Volumes and claims: the controller that binds them to each other, and a provisioner for classes that have one.

    claim ── names a volume, or a volume is kept for it, or (Immediate) one suits ──► both are Bound
          ── WaitForFirstConsumer, annotation selected-node ──► the provisioner makes a volume that the node reaches
    volume whose claim is gone ──► deleted where the provisioner made it, else Released

Parameters of a StorageClass say how its provisioner behaves: `simulator.muster.dev/topology-key`, the label of the node by
which its volumes are restricted (without it every node reaches them); `simulator.muster.dev/refuses`, nodes separated by commas
(`*` for all) for which it gives up, as external provisioners do, by taking the annotation away; `simulator.muster.dev/seconds`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from muster.model.quantity import to_bytes
from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.errors import ApiError
from muster.simulator.selectors import selector_predicate
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Object = dict[str, Any]
CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
TOPOLOGY_KEY = "simulator.muster.dev/topology-key"
REFUSES = "simulator.muster.dev/refuses"
SECONDS = "simulator.muster.dev/seconds"
PROVISION_SECONDS = 1.0


class Volumes:
    """See the module."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._claims = WorkQueue[tuple[str, str]](timers, self._sync_claim)
        self._volumes = WorkQueue[str](timers, self._sync_volume)
        self._provisioner = WorkQueue[tuple[str, str]](timers, self._provision)
        store.subscribe(CLAIMS, self._on_claim)
        store.subscribe(VOLUMES, self._on_volume)
        store.subscribe(CLASSES, lambda *_: self._all_claims())

    def _on_claim(self, event: str, claim: Object, _old: Object | None) -> None:
        metadata = claim["metadata"]
        if event != "DELETED":
            self._claims.add((metadata["namespace"], metadata["name"]))
        else:
            for volume in self._store.list(VOLUMES):
                if _reference(volume).get("uid") == metadata["uid"]:
                    self._volumes.add(volume["metadata"]["name"])

    def _on_volume(self, event: str, volume: Object, _old: Object | None) -> None:
        if event != "DELETED":
            self._volumes.add(volume["metadata"]["name"])

    def _all_claims(self) -> None:
        for claim in self._store.list(CLAIMS):
            self._claims.add((claim["metadata"]["namespace"], claim["metadata"]["name"]))

    # --- volumes -----------------------------------------------------------------------------------------------------

    def _sync_volume(self, name: str) -> None:
        volume = self._store.find(VOLUMES, None, name)
        if volume is None or "deletionTimestamp" in volume["metadata"]:
            return
        kept_for = _reference(volume)
        if not kept_for:
            if _phase(volume) != "Available":
                self._set(VOLUMES, None, name, {"status": {"phase": "Available"}}, subresource="status")
                self._all_claims()
            return
        claim = self._store.find(CLAIMS, kept_for.get("namespace"), kept_for.get("name", ""))
        if claim is None or kept_for.get("uid") not in {None, "", claim["metadata"]["uid"]}:
            if kept_for.get("uid"):
                self._reclaim(volume)
            return
        bound_to = claim["spec"].get("volumeName")
        if bound_to in {None, "", name}:
            self._claims.add((claim["metadata"]["namespace"], claim["metadata"]["name"]))
        elif BY_CONTROLLER in (volume["metadata"].get("annotations") or {}):
            annotations = {"annotations": {BY_CONTROLLER: None}}
            self._set(VOLUMES, None, name, {"metadata": annotations, "spec": {"claimRef": None}})

    def _reclaim(self, volume: Object) -> None:
        metadata = volume["metadata"]
        if PROVISIONED_BY in (metadata.get("annotations") or {}):
            self._try(lambda: self._store.delete(VOLUMES, None, metadata["name"]))
        elif _phase(volume) != "Released":
            self._set(VOLUMES, None, metadata["name"], {"status": {"phase": "Released"}}, subresource="status")

    # --- claims ------------------------------------------------------------------------------------------------------

    def _sync_claim(self, key: tuple[str, str]) -> None:
        claim = self._store.find(CLAIMS, *key)
        if claim is None or "deletionTimestamp" in claim["metadata"] or _phase(claim) == "Bound":
            return
        if not _phase(claim):
            self._set(CLAIMS, *key, {"status": {"phase": "Pending"}}, subresource="status")
        volume = self._volume_for(claim)
        if volume is not None:
            self._bind(claim, volume)
            return
        kind = self._class_of(claim)
        made = kind is not None and kind.get("provisioner") != NO_PROVISIONER and not claim["spec"].get("volumeName")
        selected = SELECTED_NODE in (claim["metadata"].get("annotations") or {})
        if kind is not None and made and (selected or not _waits(kind)):
            self._provisioner.add_after(key, float((kind.get("parameters") or {}).get(SECONDS, PROVISION_SECONDS)))

    def _class_of(self, claim: Object) -> Object | None:
        name = claim["spec"].get("storageClassName")
        return self._store.find(CLASSES, None, name) if name else None

    def _volume_for(self, claim: Object) -> Object | None:
        named = claim["spec"].get("volumeName")
        if named:
            volume = self._store.find(VOLUMES, None, named)
            free = volume is not None and (not _reference(volume) or _kept_for(volume, claim))
            return volume if free else None
        volumes = [one for one in self._store.list(VOLUMES) if "deletionTimestamp" not in one["metadata"]]
        kept = next((one for one in volumes if _kept_for(one, claim)), None)
        kind = self._class_of(claim)
        if kept is not None or (kind is not None and _waits(kind)):
            return kept
        suiting = [one for one in volumes if not _reference(one) and _suits(one, claim)]
        return min(suiting, key=lambda one: (_size(one["spec"].get("capacity")), one["metadata"]["name"]), default=None)

    def _bind(self, claim: Object, volume: Object) -> None:
        name, metadata = volume["metadata"]["name"], claim["metadata"]
        spec = {"claimRef": reference_to(claim)}
        self._set(VOLUMES, None, name, {"spec": spec})
        self._set(VOLUMES, None, name, {"status": {"phase": "Bound"}}, subresource="status")
        done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        where = (CLAIMS, metadata["namespace"], metadata["name"])
        self._set(*where, {"metadata": done, "spec": {"volumeName": name}})
        offers = {"capacity": volume["spec"].get("capacity"), "accessModes": volume["spec"].get("accessModes")}
        self._set(*where, {"status": {"phase": "Bound", **offers}}, subresource="status")

    # --- the provisioner ---------------------------------------------------------------------------------------------

    def _provision(self, key: tuple[str, str]) -> None:
        claim = self._store.find(CLAIMS, *key)
        kind = self._class_of(claim) if claim is not None else None
        if claim is None or kind is None or claim["spec"].get("volumeName"):
            return
        parameters = kind.get("parameters") or {}
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, "")
        node = self._store.find("nodes", None, selected) if selected else None
        refused = parameters.get(REFUSES, "").split(",")
        if _waits(kind) and (node is None or selected in refused or "*" in refused):
            self._set(CLAIMS, *key, {"metadata": {"annotations": {SELECTED_NODE: None}}})
            return
        name = f"pvc-{claim['metadata']['uid']}"
        spec: Object = {
            "capacity": dict((claim["spec"].get("resources") or {}).get("requests") or {}),
            "accessModes": claim["spec"].get("accessModes"),
            "volumeMode": claim["spec"].get("volumeMode", "Filesystem"),
            "storageClassName": kind["metadata"]["name"],
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": kind["provisioner"], "volumeHandle": name},
            "claimRef": reference_to(claim),
        }
        label = parameters.get(TOPOLOGY_KEY, "")
        value = (node["metadata"].get("labels") or {}).get(label) if node is not None else None
        if value is not None:
            term = {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        metadata = {"name": name, "annotations": {PROVISIONED_BY: kind["provisioner"]}}
        self._try(lambda: self._store.create(VOLUMES, {"metadata": metadata, "spec": spec}))

    def _set(
        self, resource: str, namespace: str | None, name: str, body: Object, *, subresource: str | None = None
    ) -> None:
        self._try(lambda: self._store.patch(resource, namespace, name, body, subresource=subresource))

    @staticmethod
    def _try(write: Callable[[], object]) -> None:
        """What has changed or gone meanwhile comes again by its own event."""
        try:
            write()
        except ApiError as error:
            if error.code not in {404, 409}:
                raise


def reference_to(claim: Object) -> Object:
    """A claimRef."""
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _reference(volume: Object) -> Object:
    return volume["spec"].get("claimRef") or {}


def _kept_for(volume: Object, claim: Object) -> bool:
    kept_for, metadata = _reference(volume), claim["metadata"]
    same = (kept_for.get("namespace"), kept_for.get("name")) == (metadata["namespace"], metadata["name"])
    return same and kept_for.get("uid") in {None, "", metadata["uid"]}


def _suits(volume: Object, claim: Object) -> bool:
    asks, offers = claim["spec"], volume["spec"]
    return (
        (asks.get("storageClassName") or "") == (offers.get("storageClassName") or "")
        and set(asks.get("accessModes") or ()) <= set(offers.get("accessModes") or ())
        and (asks.get("volumeMode") or "Filesystem") == (offers.get("volumeMode") or "Filesystem")
        and _size((asks.get("resources") or {}).get("requests")) <= _size(offers.get("capacity"))
        and selector_predicate(asks.get("selector") or {})(volume["metadata"].get("labels") or {})
    )


def _size(amounts: Mapping[str, Any] | None) -> int:
    return to_bytes((amounts or {}).get("storage") or 0)


def _phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def _waits(kind: Object) -> bool:
    return kind.get("volumeBindingMode") == "WaitForFirstConsumer"
