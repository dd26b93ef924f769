"""The field tables behind `core_schema`: every field of the built-in kinds that are checked, nothing else."""

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

TYPES = """
ObjectMeta: name=string generateName=string namespace=string selfLink=string uid=string resourceVersion=string generation=int creationTimestamp=time deletionTimestamp=time deletionGracePeriodSeconds=int labels={string} annotations={string} ownerReferences=[OwnerReference] finalizers=[string] managedFields=[any]
OwnerReference: apiVersion=string kind=string name=string uid=string controller=bool blockOwnerDeletion=bool
Condition: type=string status=string observedGeneration=int lastTransitionTime=time lastProbeTime=time lastUpdateTime=time lastHeartbeatTime=time reason=string message=string
LabelSelector: matchLabels={string} matchExpressions=[LabelSelectorRequirement]
LabelSelectorRequirement: key=string operator=string values=[string]
LocalObjectReference: name=string
ObjectReference: kind=string namespace=string name=string uid=string apiVersion=string resourceVersion=string fieldPath=string
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
Job: apiVersion=string kind=string metadata=ObjectMeta spec=JobSpec status=JobStatus
JobSpec: parallelism=int completions=int activeDeadlineSeconds=int podFailurePolicy=any successPolicy=any backoffLimit=int backoffLimitPerIndex=int maxFailedIndexes=int selector=LabelSelector manualSelector=bool template=PodTemplateSpec ttlSecondsAfterFinished=int completionMode=string suspend=bool podReplacementPolicy=string managedBy=string
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
