"""The resource types the simulated API server knows, and the registry that CRDs extend while it runs.

A type is named by its key, `plural` or `plural.group`. Each type has one table in the store whatever the version a
client speaks; only the storage version's objects are kept, other served versions differ in `apiVersion` alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.simulator.errors import qualified


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a custom resource keeps what the scale subresource shows, as dotted paths without the leading dot."""

    spec_replicas: str
    status_replicas: str
    label_selector: str | None


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One additionalPrinterColumn of a CRD version."""

    name: str
    type: str
    json_path: str
    priority: int = 0
    format: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """One served version of a type: its OpenAPI v3 schema (None: not checked here) and its table columns."""

    name: str
    schema: Mapping[str, Any] | None = None
    columns: tuple[PrinterColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceType:
    """What the server must know about one resource; `versions[0]` is preferred, `storage_version` is kept."""

    group: str
    plural: str
    kind: str
    versions: tuple[ServedVersion, ...]
    storage_version: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    scale: ScalePaths | None = None
    subresources: tuple[str, ...] = ()
    custom: bool = False
    stored: bool = True
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", qualified(self.plural, self.group))

    @property
    def api_version(self) -> str:
        """The `apiVersion` of stored objects."""
        return self.api_version_of(self.storage_version)

    def api_version_of(self, version: str) -> str:
        """The `apiVersion` a client of `version` sees."""
        return f"{self.group}/{version}" if self.group else version

    def version(self, name: str) -> ServedVersion | None:
        """The served version of that name."""
        return next((version for version in self.versions if version.name == name), None)


class UnknownResourceError(LookupError):
    """A resource key that is not registered."""


class Registry:
    """All types by key and by (group, version, plural); CRDs are added and removed while the server runs."""

    def __init__(self, types: Iterable[ResourceType]) -> None:
        self._by_key: dict[str, ResourceType] = {}
        self._by_path: dict[tuple[str, str, str], ResourceType] = {}
        self.revision = 0
        for resource_type in types:
            self.add(resource_type)

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._by_key.values())

    def get(self, key: str) -> ResourceType:
        """The type of a key; UnknownResourceError says what is registered under a similar name."""
        found = self._by_key.get(key)
        if found is None:
            plural = key.partition(".")[0]
            near = sorted(known for known in self._by_key if known.partition(".")[0] == plural)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UnknownResourceError(f"resource: {key!r} is not served{hint}")
        return found

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The type behind a request path, if that version is served."""
        return self._by_path.get((group, version, plural))

    def has(self, key: str) -> bool:
        """Whether a key is served."""
        return key in self._by_key

    def add(self, resource_type: ResourceType) -> None:
        """Serve a type, replacing an older definition of the same key."""
        self.remove(resource_type.key)
        self._by_key[resource_type.key] = resource_type
        for version in resource_type.versions:
            self._by_path[resource_type.group, version.name, resource_type.plural] = resource_type
        self.revision += 1

    def remove(self, key: str) -> None:
        """Stop serving a type."""
        old = self._by_key.pop(key, None)
        if old is None:
            return
        for version in old.versions:
            self._by_path.pop((old.group, version.name, old.plural), None)
        self.revision += 1


def _built_in(
    key: str,
    kind: str,
    *,
    version: str = "v1",
    cluster: bool = False,
    short: str = "",
    categories: str = "",
    status: bool = False,
    generation: bool = False,
    subresources: str = "",
    singular: str = "",
    scale: ScalePaths | None = None,
    stored: bool = True,
) -> ResourceType:
    plural, _, group = key.partition(".")
    return ResourceType(
        group=group,
        plural=plural,
        kind=kind,
        versions=(ServedVersion(version),),
        storage_version=version,
        namespaced=not cluster,
        singular=singular or kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        status=status,
        generation=generation,
        scale=scale,
        subresources=tuple(subresources.split()),
        stored=stored,
    )


_REPLICAS = ScalePaths("spec.replicas", "status.replicas", None)


def built_in_types() -> tuple[ResourceType, ...]:
    """The resources every Kubernetes cluster serves and that something in or around Muster uses."""
    workload: dict[str, Any] = {"status": True, "generation": True, "categories": "all"}
    return (
        _built_in("namespaces", "Namespace", cluster=True, short="ns", status=True, subresources="finalize"),
        _built_in(
            "pods", "Pod", short="po", categories="all", status=True, generation=True, subresources="binding eviction"
        ),
        _built_in("bindings", "Binding", stored=False),
        _built_in("nodes", "Node", cluster=True, short="no", status=True),
        _built_in("events", "Event", short="ev"),
        _built_in("configmaps", "ConfigMap", short="cm"),
        _built_in("secrets", "Secret"),
        _built_in("services", "Service", short="svc", categories="all", status=True),
        _built_in("serviceaccounts", "ServiceAccount", short="sa"),
        _built_in("endpoints", "Endpoints", short="ep", singular="endpoints"),
        _built_in("persistentvolumeclaims", "PersistentVolumeClaim", short="pvc", status=True),
        _built_in("persistentvolumes", "PersistentVolume", cluster=True, short="pv", status=True),
        _built_in("resourcequotas", "ResourceQuota", short="quota", status=True),
        _built_in("limitranges", "LimitRange", short="limits"),
        _built_in("replicationcontrollers", "ReplicationController", short="rc", scale=_REPLICAS, **workload),
        _built_in("podtemplates", "PodTemplate"),
        _built_in("events.events.k8s.io", "Event", short="ev", stored=False),
        _built_in("deployments.apps", "Deployment", short="deploy", scale=_REPLICAS, **workload),
        _built_in("replicasets.apps", "ReplicaSet", short="rs", scale=_REPLICAS, **workload),
        _built_in("statefulsets.apps", "StatefulSet", short="sts", scale=_REPLICAS, **workload),
        _built_in("daemonsets.apps", "DaemonSet", short="ds", **workload),
        _built_in("controllerrevisions.apps", "ControllerRevision"),
        _built_in("jobs.batch", "Job", **workload),
        _built_in("cronjobs.batch", "CronJob", short="cj", **workload),
        _built_in("leases.coordination.k8s.io", "Lease"),
        _built_in("priorityclasses.scheduling.k8s.io", "PriorityClass", cluster=True, short="pc", generation=True),
        _built_in("poddisruptionbudgets.policy", "PodDisruptionBudget", short="pdb", status=True, generation=True),
        _built_in(
            "horizontalpodautoscalers.autoscaling", "HorizontalPodAutoscaler", version="v2", short="hpa", status=True
        ),
        _built_in("networkpolicies.networking.k8s.io", "NetworkPolicy", short="netpol", generation=True),
        _built_in("ingresses.networking.k8s.io", "Ingress", short="ing", status=True, generation=True),
        _built_in("storageclasses.storage.k8s.io", "StorageClass", cluster=True, short="sc"),
        _built_in("runtimeclasses.node.k8s.io", "RuntimeClass", cluster=True),
        _built_in("endpointslices.discovery.k8s.io", "EndpointSlice", generation=True),
        _built_in("roles.rbac.authorization.k8s.io", "Role"),
        _built_in("rolebindings.rbac.authorization.k8s.io", "RoleBinding"),
        _built_in("clusterroles.rbac.authorization.k8s.io", "ClusterRole", cluster=True),
        _built_in("clusterrolebindings.rbac.authorization.k8s.io", "ClusterRoleBinding", cluster=True),
        _built_in(
            "selfsubjectaccessreviews.authorization.k8s.io", "SelfSubjectAccessReview", cluster=True, stored=False
        ),
        _built_in("subjectaccessreviews.authorization.k8s.io", "SubjectAccessReview", cluster=True, stored=False),
        _built_in(
            "customresourcedefinitions.apiextensions.k8s.io",
            "CustomResourceDefinition",
            cluster=True,
            short="crd crds",
            categories="api-extensions",
            status=True,
            generation=True,
        ),
        _built_in(
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            cluster=True,
            categories="api-extensions",
            generation=True,
        ),
        _built_in(
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            cluster=True,
            categories="api-extensions",
            generation=True,
        ),
    )
