"""Which fields the objects have that people write, and what an unknown one was likely meant to be.

One type a line: ``VolcanoTask: name=string template=PodTemplateSpec policies=[VolcanoPolicy]``. A field's type is a scalar,
another type's name, ``[T]`` for a list or ``{T}`` for a map; ``any`` is not looked into. The custom resources are those of the
CRD chart, field by field.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.decide.cards import SPELLINGS
from muster.decide.field_problems import shown
from muster.decide.findings import Problem
from muster.decide.spelling import likely, meant
from muster.model.policy import Policy

POD_TYPES = """
ObjectMeta: name=string generateName=string namespace=string selfLink=string uid=string resourceVersion=string generation=int creationTimestamp=time deletionTimestamp=time deletionGracePeriodSeconds=int labels={string} annotations={string} ownerReferences=[OwnerReference] finalizers=[string] managedFields=[any]
OwnerReference: apiVersion=string kind=string name=string uid=string controller=bool blockOwnerDeletion=bool
LabelSelector: matchLabels={string} matchExpressions=[LabelSelectorRequirement]
LabelSelectorRequirement: key=string operator=string values=[string]
LocalObjectReference: name=string
Pod: apiVersion=string kind=string metadata=ObjectMeta spec=PodSpec status=PodStatus
PodTemplateSpec: metadata=ObjectMeta spec=PodSpec
PodSpec: volumes=[Volume] initContainers=[Container] containers=[Container] ephemeralContainers=[any] restartPolicy=string terminationGracePeriodSeconds=int activeDeadlineSeconds=int dnsPolicy=string nodeSelector={string} serviceAccountName=string serviceAccount=string automountServiceAccountToken=bool nodeName=string hostNetwork=bool hostPID=bool hostIPC=bool shareProcessNamespace=bool securityContext=any imagePullSecrets=[LocalObjectReference] hostname=string subdomain=string affinity=Affinity schedulerName=string tolerations=[Toleration] hostAliases=[HostAlias] priorityClassName=string priority=int dnsConfig=any readinessGates=[PodReadinessGate] runtimeClassName=string enableServiceLinks=bool preemptionPolicy=string overhead={quantity} topologySpreadConstraints=[TopologySpreadConstraint] setHostnameAsFQDN=bool os=any hostUsers=bool schedulingGates=[LocalObjectReference] resourceClaims=[any] resources=ResourceRequirements hostnameOverride=string workloadRef=any schedulingGroup=any
PodReadinessGate: conditionType=string
HostAlias: ip=string hostnames=[string]
Toleration: key=string operator=string value=string effect=string tolerationSeconds=int
TopologySpreadConstraint: maxSkew=int topologyKey=string whenUnsatisfiable=string labelSelector=LabelSelector minDomains=int nodeAffinityPolicy=string nodeTaintsPolicy=string matchLabelKeys=[string]
Affinity: nodeAffinity=NodeAffinity podAffinity=PodAffinity podAntiAffinity=PodAffinity
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution=NodeSelector preferredDuringSchedulingIgnoredDuringExecution=[PreferredSchedulingTerm]
NodeSelector: nodeSelectorTerms=[NodeSelectorTerm]
NodeSelectorTerm: matchExpressions=[LabelSelectorRequirement] matchFields=[LabelSelectorRequirement]
PreferredSchedulingTerm: weight=int preference=NodeSelectorTerm
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution=[PodAffinityTerm] preferredDuringSchedulingIgnoredDuringExecution=[WeightedPodAffinityTerm]
WeightedPodAffinityTerm: weight=int podAffinityTerm=PodAffinityTerm
PodAffinityTerm: labelSelector=LabelSelector namespaces=[string] topologyKey=string namespaceSelector=LabelSelector matchLabelKeys=[string] mismatchLabelKeys=[string]
Container: name=string image=string command=[string] args=[string] workingDir=string ports=[ContainerPort] envFrom=[any] env=[EnvVar] resources=ResourceRequirements resizePolicy=[any] restartPolicy=string restartPolicyRules=[any] volumeMounts=[VolumeMount] volumeDevices=[any] livenessProbe=any readinessProbe=any startupProbe=any lifecycle=any terminationMessagePath=string terminationMessagePolicy=string imagePullPolicy=string securityContext=any stdin=bool stdinOnce=bool tty=bool
ContainerPort: name=string hostPort=int containerPort=int protocol=string hostIP=string
EnvVar: name=string value=string valueFrom=any
ResourceRequirements: limits={quantity} requests={quantity} claims=[any]
VolumeMount: name=string readOnly=bool recursiveReadOnly=string mountPath=string subPath=string mountPropagation=string subPathExpr=string
Volume: name=string hostPath=any emptyDir=any gcePersistentDisk=any awsElasticBlockStore=any gitRepo=any secret=any nfs=any iscsi=any glusterfs=any persistentVolumeClaim=any rbd=any flexVolume=any cinder=any cephfs=any flocker=any downwardAPI=any fc=any azureFile=any configMap=any vsphereVolume=any quobyte=any azureDisk=any photonPersistentDisk=any projected=any portworxVolume=any scaleIO=any storageos=any csi=any ephemeral=any image=any
Job: apiVersion=string kind=string metadata=ObjectMeta spec=JobSpec status=JobStatus
JobSpec: parallelism=int completions=int activeDeadlineSeconds=int podFailurePolicy=any successPolicy=any backoffLimit=int backoffLimitPerIndex=int maxFailedIndexes=int selector=LabelSelector manualSelector=bool template=PodTemplateSpec ttlSecondsAfterFinished=int completionMode=string suspend=bool podReplacementPolicy=string managedBy=string
"""
"""Kubernetes' own types that a pod template and a batch Job are made of."""

VOLCANO_TYPES = """
VolcanoJob: apiVersion=string kind=string metadata=ObjectMeta spec=VolcanoJobSpec status=any
VolcanoJobSpec: schedulerName=string minAvailable=int volumes=[VolcanoVolume] tasks=[VolcanoTask] policies=[VolcanoPolicy] plugins={any} runningEstimate=string queue=string maxRetry=int ttlSecondsAfterFinished=int priorityClassName=string minSuccess=int networkTopology=NetworkTopology
VolcanoVolume: mountPath=string volumeClaimName=string volumeClaim=any
VolcanoTask: name=string replicas=int minAvailable=int template=PodTemplateSpec policies=[VolcanoPolicy] topologyPolicy=string maxRetry=int dependsOn=VolcanoDependsOn partitionPolicy=VolcanoPartitionPolicy
VolcanoPolicy: action=string event=string events=[string] exitCode=int timeout=string
VolcanoDependsOn: name=[string] iteration=string
VolcanoPartitionPolicy: totalPartitions=int partitionSize=int networkTopology=NetworkTopology minPartitions=int
NetworkTopology: mode=string highestTierAllowed=int highestTierName=string
Queue: apiVersion=string kind=string metadata=ObjectMeta spec=QueueSpec status=any
QueueSpec: weight=int capability={quantity} deserved={quantity} guarantee=QueueGuarantee reclaimable=bool parent=string priority=int type=string dequeueStrategy=string affinity=any extendClusters=[any]
QueueGuarantee: resource={quantity}
PodGroup: apiVersion=string kind=string metadata=ObjectMeta spec=PodGroupSpec status=any
PodGroupSpec: minMember=int minTaskMember={int} queue=string priorityClassName=string minResources={quantity} networkTopology=NetworkTopology preemptable=bool subGroupPolicy=[SubGroupPolicy]
SubGroupPolicy: name=string networkTopology=NetworkTopology subGroupSize=int minSubGroups=int labelSelector=LabelSelector matchLabelKeys=[string]
"""
"""The custom resources' types."""

PLAIN_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
SAME_RESOURCE = 0.88
"""So near must an unknown resource name be to a known one to be taken for a misspelling of it."""
OFTEN_MEANT = {"gpu": "nvidia.com/gpu", "gpus": "nvidia.com/gpu", "mem": "memory", "ram": "memory", "cpus": "cpu"}


def parse_types(text: str) -> dict[str, dict[str, str]]:
    """Type name → field → type expression."""
    parsed: dict[str, dict[str, str]] = {}
    for line in filter(None, text.splitlines()):
        name, _, fields = line.partition(":")
        parsed[name.strip()] = dict(field.split("=", 1) for field in fields.split())
    return parsed


TYPES: Mapping[str, Mapping[str, str]] = parse_types(POD_TYPES + VOLCANO_TYPES)
KINDS: Mapping[tuple[str, str], str] = {
    ("batch.volcano.sh/v1alpha1", "Job"): "VolcanoJob",
    ("scheduling.volcano.sh/v1beta1", "Queue"): "Queue",
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): "PodGroup",
    ("batch/v1", "Job"): "Job",
    ("v1", "Pod"): "Pod",
}
"""Kinds whose fields are all known."""


def unknown_fields(document: Mapping[str, Any], *, path: str = "") -> Iterable[Problem]:
    """Every field of a Kubernetes object that its kind has not; nothing for a kind that is not known."""
    kind = KINDS.get((str(document.get("apiVersion") or ""), str(document.get("kind") or "")))
    if kind is not None:
        yield from _unknown(document, kind, path)


def unknown_template_fields(template: Mapping[str, Any], *, path: str) -> Iterable[Problem]:
    """Every field of a pod template that pods have not."""
    yield from _unknown(template, "PodTemplateSpec", path)


def _unknown(value: Any, form: str, path: str) -> Iterable[Problem]:
    if form.startswith("["):
        for number, item in enumerate(value if isinstance(value, list) else ()):
            yield from _unknown(item, form[1:-1], f"{path}[{number}]")
    elif form.startswith("{"):
        for name, item in value.items() if isinstance(value, Mapping) else ():
            yield from _unknown(item, form[1:-1], f'{path}["{name}"]')
    elif (fields := TYPES.get(form)) is not None and isinstance(value, Mapping):
        here = f"{path}." if path else ""
        for name, item in value.items():
            if name in fields:
                yield from _unknown(item, fields[name], f"{here}{name}")
                continue
            message = f"there is no field {name} here{meant(str(name), fields)}"
            yield Problem(field=f"{here}{name}", value=shown(item), message=message)


def resource_problems(template: Mapping[str, Any], *, path: str, policy: Policy) -> Iterable[Problem]:
    """Resource names of a pod template's containers that nothing offers, where another one was likely meant."""
    known = {*PLAIN_RESOURCES, *SPELLINGS, *policy.card_resources}
    for group in ("initContainers", "containers"):
        for number, container in enumerate((template.get("spec") or {}).get(group) or ()):
            for side in ("limits", "requests"):
                for name, value in ((container.get("resources") or {}).get(side) or {}).items():
                    if message := _resource_doubt(str(name), known):
                        field = f'{path}spec.{group}[{number}].resources.{side}["{name}"]'
                        yield Problem(field=field, value=shown(value), message=message)


def _resource_doubt(name: str, known: Iterable[str]) -> str:
    lower = name.lower()
    if lower in known or lower.startswith("hugepages-"):
        return ""
    near = OFTEN_MEANT.get(lower) or likely(lower, known, cutoff=SAME_RESOURCE)
    if near:
        return f"no resource {name} is known; did you mean {near}?"
    return "" if "/" in name else f"no resource {name} is known; names of devices have a domain, such as nvidia.com/gpu"


def container_problems(template: Mapping[str, Any], *, path: str) -> Iterable[Problem]:
    """Containers without a name or an image, and a template without containers."""
    containers = (template.get("spec") or {}).get("containers") or ()
    if not containers:
        yield Problem(field=f"{path}spec.containers", value="[]", message="needs at least one container")
    for group in ("initContainers", "containers"):
        for number, container in enumerate((template.get("spec") or {}).get(group) or ()):
            here = f"{path}spec.{group}[{number}]"
            if not container.get("name"):
                yield Problem(field=f"{here}.name", value="", message="is missing: every container needs a name")
            image = container.get("image")
            if not image or any(character.isspace() for character in str(image)):
                message = "needs an image such as registry.example.com/llm:3, without spaces"
                yield Problem(field=f"{here}.image", value=str(image or ""), message=message)
