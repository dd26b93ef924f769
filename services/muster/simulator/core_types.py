"""The field tables behind `core_schema`: every field of the built-in kinds that are checked, nothing else."""

from muster.decide.known_fields import POD_TYPES

KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "jobs.batch": "Job",
    "priorityclasses.scheduling.k8s.io": "PriorityClass",
    "configmaps": "ConfigMap",
    "leases.coordination.k8s.io": "Lease",
    "events": "Event",
    "serviceaccounts": "ServiceAccount",
    "deployments.apps": "Deployment",
    "replicasets.apps": "ReplicaSet",
    "poddisruptionbudgets.policy": "PodDisruptionBudget",
}

TYPES = (
    POD_TYPES
    + """
Condition: type=string status=string observedGeneration=int lastTransitionTime=time lastProbeTime=time lastUpdateTime=time lastHeartbeatTime=time reason=string message=string
ObjectReference: kind=string namespace=string name=string uid=string apiVersion=string resourceVersion=string fieldPath=string
PodStatus: observedGeneration=int phase=string conditions=[Condition] message=string reason=string nominatedNodeName=string hostIP=string hostIPs=[any] podIP=string podIPs=[any] startTime=time initContainerStatuses=[ContainerStatus] containerStatuses=[ContainerStatus] qosClass=string ephemeralContainerStatuses=[ContainerStatus] resize=string resourceClaimStatuses=[any] extendedResourceClaimStatus=any allocatedResources={quantity} resources=any
ContainerStatus: name=string state=any lastState=any ready=bool restartCount=int image=string imageID=string containerID=string started=bool allocatedResources={quantity} resources=any volumeMounts=[any] user=any allocatedResourcesStatus=[any] stopSignal=string
Node: apiVersion=string kind=string metadata=ObjectMeta spec=NodeSpec status=NodeStatus
NodeSpec: podCIDR=string podCIDRs=[string] providerID=string unschedulable=bool taints=[Taint] configSource=any externalID=string
Taint: key=string value=string effect=string timeAdded=time
NodeStatus: capacity={quantity} allocatable={quantity} phase=string conditions=[Condition] addresses=[NodeAddress] daemonEndpoints=any nodeInfo=any images=[any] volumesInUse=[string] volumesAttached=[any] config=any runtimeHandlers=[any] features=any declaredFeatures=[string]
NodeAddress: type=string address=string
Namespace: apiVersion=string kind=string metadata=ObjectMeta spec=NamespaceSpec status=NamespaceStatus
NamespaceSpec: finalizers=[string]
NamespaceStatus: phase=string conditions=[Condition]
JobStatus: conditions=[Condition] startTime=time completionTime=time active=int succeeded=int failed=int terminating=int completedIndexes=string failedIndexes=string uncountedTerminatedPods=any ready=int
PriorityClass: apiVersion=string kind=string metadata=ObjectMeta value=int globalDefault=bool description=string preemptionPolicy=string
ConfigMap: apiVersion=string kind=string metadata=ObjectMeta immutable=bool data={string} binaryData={string}
Lease: apiVersion=string kind=string metadata=ObjectMeta spec=LeaseSpec
LeaseSpec: holderIdentity=string leaseDurationSeconds=int acquireTime=time renewTime=time leaseTransitions=int strategy=string preferredHolder=string
Event: apiVersion=string kind=string metadata=ObjectMeta involvedObject=ObjectReference reason=string message=string source=EventSource firstTimestamp=time lastTimestamp=time count=int type=string eventTime=time series=EventSeries action=string related=ObjectReference reportingComponent=string reportingInstance=string
EventSource: component=string host=string
EventSeries: count=int lastObservedTime=time
ServiceAccount: apiVersion=string kind=string metadata=ObjectMeta secrets=[ObjectReference] imagePullSecrets=[LocalObjectReference] automountServiceAccountToken=bool
Deployment: apiVersion=string kind=string metadata=ObjectMeta spec=DeploymentSpec status=any
DeploymentSpec: replicas=int selector=LabelSelector template=PodTemplateSpec strategy=any minReadySeconds=int revisionHistoryLimit=int paused=bool progressDeadlineSeconds=int
ReplicaSet: apiVersion=string kind=string metadata=ObjectMeta spec=ReplicaSetSpec status=any
ReplicaSetSpec: replicas=int minReadySeconds=int selector=LabelSelector template=PodTemplateSpec
PodDisruptionBudget: apiVersion=string kind=string metadata=ObjectMeta spec=PodDisruptionBudgetSpec status=any
PodDisruptionBudgetSpec: minAvailable=intstr selector=LabelSelector maxUnavailable=intstr unhealthyPodEvictionPolicy=string
"""
)
