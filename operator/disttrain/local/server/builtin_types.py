"""The fields of the built-in types, as the OpenAPI documents of a Kubernetes 1.34 API server list them.

One type a paragraph, `Type: field=code ...`, continued on indented lines. A code is a type of this table, `[code]`
for a list, `{code}` for a map with string keys, or one of string, bytes, int, number, bool, time, quantity,
intorstring, any.
Behind a list, `:key` says that a strategic merge patch merges its items by that key, a bare `:` that it is a merged
list of plain values; a `!` says that a patch names the keys to keep ($retainKeys).
"""

from __future__ import annotations

META_TYPES = frozenset(
    {"Condition", "LabelSelector", "LabelSelectorRequirement", "ManagedFieldsEntry", "ObjectMeta", "OwnerReference"}
)

FIELDS = """\
AWSElasticBlockStoreVolumeSource: fsType=string partition=int readOnly=bool volumeID=string
Affinity: nodeAffinity=NodeAffinity podAffinity=PodAffinity podAntiAffinity=PodAntiAffinity
AppArmorProfile: localhostProfile=string type=string
AttachedVolume: devicePath=string name=string
AzureDiskVolumeSource: cachingMode=string diskName=string diskURI=string fsType=string kind=string readOnly=bool
AzureFileVolumeSource: readOnly=bool secretName=string shareName=string
CSIVolumeSource: driver=string fsType=string nodePublishSecretRef=LocalObjectReference readOnly=bool
  volumeAttributes={string}
Capabilities: add=[string] drop=[string]
CephFSVolumeSource: monitors=[string] path=string readOnly=bool secretFile=string secretRef=LocalObjectReference
  user=string
CinderVolumeSource: fsType=string readOnly=bool secretRef=LocalObjectReference volumeID=string
ClientIPConfig: timeoutSeconds=int
ClusterTrustBundleProjection: labelSelector=LabelSelector name=string optional=bool path=string signerName=string
Condition: lastTransitionTime=time message=string observedGeneration=int reason=string status=string type=string
ConfigMap: apiVersion=string binaryData={bytes} data={string} immutable=bool kind=string metadata=ObjectMeta
ConfigMapEnvSource: name=string optional=bool
ConfigMapKeySelector: key=string name=string optional=bool
ConfigMapNodeConfigSource: kubeletConfigKey=string name=string namespace=string resourceVersion=string uid=string
ConfigMapProjection: items=[KeyToPath] name=string optional=bool
ConfigMapVolumeSource: defaultMode=int items=[KeyToPath] name=string optional=bool
Container: args=[string] command=[string] env=[EnvVar]:name envFrom=[EnvFromSource] image=string
  imagePullPolicy=string lifecycle=Lifecycle livenessProbe=Probe name=string ports=[ContainerPort]:containerPort
  readinessProbe=Probe resizePolicy=[ContainerResizePolicy] resources=ResourceRequirements restartPolicy=string
  restartPolicyRules=[ContainerRestartRule] securityContext=SecurityContext startupProbe=Probe stdin=bool
  stdinOnce=bool terminationMessagePath=string terminationMessagePolicy=string tty=bool
  volumeDevices=[VolumeDevice]:devicePath volumeMounts=[VolumeMount]:mountPath workingDir=string
ContainerExtendedResourceRequest: containerName=string requestName=string resourceName=string
ContainerImage: names=[string] sizeBytes=int
ContainerPort: containerPort=int hostIP=string hostPort=int name=string protocol=string
ContainerResizePolicy: resourceName=string restartPolicy=string
ContainerRestartRule: action=string exitCodes=ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator=string values=[int]
ContainerState: running=ContainerStateRunning terminated=ContainerStateTerminated waiting=ContainerStateWaiting
ContainerStateRunning: startedAt=time
ContainerStateTerminated: containerID=string exitCode=int finishedAt=time message=string reason=string signal=int
  startedAt=time
ContainerStateWaiting: message=string reason=string
ContainerStatus: allocatedResources={quantity} allocatedResourcesStatus=[ResourceStatus]:name containerID=string
  image=string imageID=string lastState=ContainerState name=string ready=bool resources=ResourceRequirements
  restartCount=int started=bool state=ContainerState stopSignal=string user=ContainerUser
  volumeMounts=[VolumeMountStatus]:mountPath
ContainerUser: linux=LinuxContainerUser
DaemonEndpoint: Port=int
DownwardAPIProjection: items=[DownwardAPIVolumeFile]
DownwardAPIVolumeFile: fieldRef=ObjectFieldSelector mode=int path=string resourceFieldRef=ResourceFieldSelector
DownwardAPIVolumeSource: defaultMode=int items=[DownwardAPIVolumeFile]
EmptyDirVolumeSource: medium=string sizeLimit=quantity
EnvFromSource: configMapRef=ConfigMapEnvSource prefix=string secretRef=SecretEnvSource
EnvVar: name=string value=string valueFrom=EnvVarSource
EnvVarSource: configMapKeyRef=ConfigMapKeySelector fieldRef=ObjectFieldSelector fileKeyRef=FileKeySelector
  resourceFieldRef=ResourceFieldSelector secretKeyRef=SecretKeySelector
EphemeralContainer: args=[string] command=[string] env=[EnvVar]:name envFrom=[EnvFromSource] image=string
  imagePullPolicy=string lifecycle=Lifecycle livenessProbe=Probe name=string ports=[ContainerPort]:containerPort
  readinessProbe=Probe resizePolicy=[ContainerResizePolicy] resources=ResourceRequirements restartPolicy=string
  restartPolicyRules=[ContainerRestartRule] securityContext=SecurityContext startupProbe=Probe stdin=bool
  stdinOnce=bool targetContainerName=string terminationMessagePath=string terminationMessagePolicy=string tty=bool
  volumeDevices=[VolumeDevice]:devicePath volumeMounts=[VolumeMount]:mountPath workingDir=string
EphemeralVolumeSource: volumeClaimTemplate=PersistentVolumeClaimTemplate
Event: action=string apiVersion=string count=int eventTime=time firstTimestamp=time involvedObject=ObjectReference
  kind=string lastTimestamp=time message=string metadata=ObjectMeta reason=string related=ObjectReference
  reportingComponent=string reportingInstance=string series=EventSeries source=EventSource type=string
EventSeries: count=int lastObservedTime=time
EventSource: component=string host=string
ExecAction: command=[string]
FCVolumeSource: fsType=string lun=int readOnly=bool targetWWNs=[string] wwids=[string]
FileKeySelector: key=string optional=bool path=string volumeName=string
FlexVolumeSource: driver=string fsType=string options={string} readOnly=bool secretRef=LocalObjectReference
FlockerVolumeSource: datasetName=string datasetUUID=string
GCEPersistentDiskVolumeSource: fsType=string partition=int pdName=string readOnly=bool
GRPCAction: port=int service=string
GitRepoVolumeSource: directory=string repository=string revision=string
GlusterfsVolumeSource: endpoints=string path=string readOnly=bool
HTTPGetAction: host=string httpHeaders=[HTTPHeader] path=string port=intorstring scheme=string
HTTPHeader: name=string value=string
HostAlias: hostnames=[string] ip=string
HostIP: ip=string
HostPathVolumeSource: path=string type=string
ISCSIVolumeSource: chapAuthDiscovery=bool chapAuthSession=bool fsType=string initiatorName=string iqn=string
  iscsiInterface=string lun=int portals=[string] readOnly=bool secretRef=LocalObjectReference targetPortal=string
ImageVolumeSource: pullPolicy=string reference=string
KeyToPath: key=string mode=int path=string
LabelSelector: matchExpressions=[LabelSelectorRequirement] matchLabels={string}
LabelSelectorRequirement: key=string operator=string values=[string]
Lease: apiVersion=string kind=string metadata=ObjectMeta spec=LeaseSpec
LeaseSpec: acquireTime=time holderIdentity=string leaseDurationSeconds=int leaseTransitions=int preferredHolder=string
  renewTime=time strategy=string
Lifecycle: postStart=LifecycleHandler preStop=LifecycleHandler stopSignal=string
LifecycleHandler: exec=ExecAction httpGet=HTTPGetAction sleep=SleepAction tcpSocket=TCPSocketAction
LinuxContainerUser: gid=int supplementalGroups=[int] uid=int
LoadBalancerIngress: hostname=string ip=string ipMode=string ports=[PortStatus]
LoadBalancerStatus: ingress=[LoadBalancerIngress]
LocalObjectReference: name=string
ManagedFieldsEntry: apiVersion=string fieldsType=string fieldsV1=any manager=string operation=string
  subresource=string time=time
ModifyVolumeStatus: status=string targetVolumeAttributesClassName=string
NFSVolumeSource: path=string readOnly=bool server=string
Namespace: apiVersion=string kind=string metadata=ObjectMeta spec=NamespaceSpec status=NamespaceStatus
NamespaceCondition: lastTransitionTime=time message=string reason=string status=string type=string
NamespaceSpec: finalizers=[string]
NamespaceStatus: conditions=[NamespaceCondition]:type phase=string
Node: apiVersion=string kind=string metadata=ObjectMeta spec=NodeSpec status=NodeStatus
NodeAddress: address=string type=string
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution=[PreferredSchedulingTerm]
  requiredDuringSchedulingIgnoredDuringExecution=NodeSelector
NodeCondition: lastHeartbeatTime=time lastTransitionTime=time message=string reason=string status=string type=string
NodeConfigSource: configMap=ConfigMapNodeConfigSource
NodeConfigStatus: active=NodeConfigSource assigned=NodeConfigSource error=string lastKnownGood=NodeConfigSource
NodeDaemonEndpoints: kubeletEndpoint=DaemonEndpoint
NodeFeatures: supplementalGroupsPolicy=bool
NodeRuntimeHandler: features=NodeRuntimeHandlerFeatures name=string
NodeRuntimeHandlerFeatures: recursiveReadOnlyMounts=bool userNamespaces=bool
NodeSelector: nodeSelectorTerms=[NodeSelectorTerm]
NodeSelectorRequirement: key=string operator=string values=[string]
NodeSelectorTerm: matchExpressions=[NodeSelectorRequirement] matchFields=[NodeSelectorRequirement]
NodeSpec: configSource=NodeConfigSource externalID=string podCIDR=string podCIDRs=[string]: providerID=string
  taints=[Taint] unschedulable=bool
NodeStatus: addresses=[NodeAddress]:type allocatable={quantity} capacity={quantity} conditions=[NodeCondition]:type
  config=NodeConfigStatus daemonEndpoints=NodeDaemonEndpoints features=NodeFeatures images=[ContainerImage]
  nodeInfo=NodeSystemInfo phase=string runtimeHandlers=[NodeRuntimeHandler] volumesAttached=[AttachedVolume]
  volumesInUse=[string]
NodeSwapStatus: capacity=int
NodeSystemInfo: architecture=string bootID=string containerRuntimeVersion=string kernelVersion=string
  kubeProxyVersion=string kubeletVersion=string machineID=string operatingSystem=string osImage=string
  swap=NodeSwapStatus systemUUID=string
ObjectFieldSelector: apiVersion=string fieldPath=string
ObjectMeta: annotations={string} creationTimestamp=time deletionGracePeriodSeconds=int deletionTimestamp=time
  finalizers=[string]: generateName=string generation=int labels={string} managedFields=[ManagedFieldsEntry]
  name=string namespace=string ownerReferences=[OwnerReference]:uid resourceVersion=string selfLink=string uid=string
ObjectReference: apiVersion=string fieldPath=string kind=string name=string namespace=string resourceVersion=string
  uid=string
OwnerReference: apiVersion=string blockOwnerDeletion=bool controller=bool kind=string name=string uid=string
PersistentVolumeClaim: apiVersion=string kind=string metadata=ObjectMeta spec=PersistentVolumeClaimSpec
  status=PersistentVolumeClaimStatus
PersistentVolumeClaimCondition: lastProbeTime=time lastTransitionTime=time message=string reason=string status=string
  type=string
PersistentVolumeClaimSpec: accessModes=[string] dataSource=TypedLocalObjectReference
  dataSourceRef=TypedObjectReference resources=VolumeResourceRequirements selector=LabelSelector
  storageClassName=string volumeAttributesClassName=string volumeMode=string volumeName=string
PersistentVolumeClaimStatus: accessModes=[string] allocatedResourceStatuses={string} allocatedResources={quantity}
  capacity={quantity} conditions=[PersistentVolumeClaimCondition]:type currentVolumeAttributesClassName=string
  modifyVolumeStatus=ModifyVolumeStatus phase=string
PersistentVolumeClaimTemplate: metadata=ObjectMeta spec=PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName=string readOnly=bool
PhotonPersistentDiskVolumeSource: fsType=string pdID=string
Pod: apiVersion=string kind=string metadata=ObjectMeta spec=PodSpec status=PodStatus
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution=[WeightedPodAffinityTerm]
  requiredDuringSchedulingIgnoredDuringExecution=[PodAffinityTerm]
PodAffinityTerm: labelSelector=LabelSelector matchLabelKeys=[string] mismatchLabelKeys=[string]
  namespaceSelector=LabelSelector namespaces=[string] topologyKey=string
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution=[WeightedPodAffinityTerm]
  requiredDuringSchedulingIgnoredDuringExecution=[PodAffinityTerm]
PodCertificateProjection: certificateChainPath=string credentialBundlePath=string keyPath=string keyType=string
  maxExpirationSeconds=int signerName=string
PodCondition: lastProbeTime=time lastTransitionTime=time message=string observedGeneration=int reason=string
  status=string type=string
PodDNSConfig: nameservers=[string] options=[PodDNSConfigOption] searches=[string]
PodDNSConfigOption: name=string value=string
PodExtendedResourceClaimStatus: requestMappings=[ContainerExtendedResourceRequest] resourceClaimName=string
PodIP: ip=string
PodOS: name=string
PodReadinessGate: conditionType=string
PodResourceClaim: name=string resourceClaimName=string resourceClaimTemplateName=string
PodResourceClaimStatus: name=string resourceClaimName=string
PodSchedulingGate: name=string
PodSecurityContext: appArmorProfile=AppArmorProfile fsGroup=int fsGroupChangePolicy=string runAsGroup=int
  runAsNonRoot=bool runAsUser=int seLinuxChangePolicy=string seLinuxOptions=SELinuxOptions
  seccompProfile=SeccompProfile supplementalGroups=[int] supplementalGroupsPolicy=string sysctls=[Sysctl]
  windowsOptions=WindowsSecurityContextOptions
PodSpec: activeDeadlineSeconds=int affinity=Affinity automountServiceAccountToken=bool containers=[Container]:name
  dnsConfig=PodDNSConfig dnsPolicy=string enableServiceLinks=bool ephemeralContainers=[EphemeralContainer]:name
  hostAliases=[HostAlias]:ip hostIPC=bool hostNetwork=bool hostPID=bool hostUsers=bool hostname=string
  hostnameOverride=string imagePullSecrets=[LocalObjectReference]:name initContainers=[Container]:name nodeName=string
  nodeSelector={string} os=PodOS overhead={quantity} preemptionPolicy=string priority=int priorityClassName=string
  readinessGates=[PodReadinessGate] resourceClaims=[PodResourceClaim]:name! resources=ResourceRequirements
  restartPolicy=string runtimeClassName=string schedulerName=string schedulingGates=[PodSchedulingGate]:name
  securityContext=PodSecurityContext serviceAccount=string serviceAccountName=string setHostnameAsFQDN=bool
  shareProcessNamespace=bool subdomain=string terminationGracePeriodSeconds=int tolerations=[Toleration]
  topologySpreadConstraints=[TopologySpreadConstraint]:topologyKey volumes=[Volume]:name!
PodStatus: conditions=[PodCondition]:type containerStatuses=[ContainerStatus]
  ephemeralContainerStatuses=[ContainerStatus] extendedResourceClaimStatus=PodExtendedResourceClaimStatus
  hostIP=string hostIPs=[HostIP]:ip initContainerStatuses=[ContainerStatus] message=string nominatedNodeName=string
  observedGeneration=int phase=string podIP=string podIPs=[PodIP]:ip qosClass=string reason=string resize=string
  resourceClaimStatuses=[PodResourceClaimStatus]:name! startTime=time
PortStatus: error=string port=int protocol=string
PortworxVolumeSource: fsType=string readOnly=bool volumeID=string
PreferredSchedulingTerm: preference=NodeSelectorTerm weight=int
Probe: exec=ExecAction failureThreshold=int grpc=GRPCAction httpGet=HTTPGetAction initialDelaySeconds=int
  periodSeconds=int successThreshold=int tcpSocket=TCPSocketAction terminationGracePeriodSeconds=int
  timeoutSeconds=int
ProjectedVolumeSource: defaultMode=int sources=[VolumeProjection]
QuobyteVolumeSource: group=string readOnly=bool registry=string tenant=string user=string volume=string
RBDVolumeSource: fsType=string image=string keyring=string monitors=[string] pool=string readOnly=bool
  secretRef=LocalObjectReference user=string
ResourceClaim: name=string request=string
ResourceFieldSelector: containerName=string divisor=quantity resource=string
ResourceHealth: health=string resourceID=string
ResourceRequirements: claims=[ResourceClaim] limits={quantity} requests={quantity}
ResourceStatus: name=string resources=[ResourceHealth]
SELinuxOptions: level=string role=string type=string user=string
ScaleIOVolumeSource: fsType=string gateway=string protectionDomain=string readOnly=bool secretRef=LocalObjectReference
  sslEnabled=bool storageMode=string storagePool=string system=string volumeName=string
SeccompProfile: localhostProfile=string type=string
Secret: apiVersion=string data={bytes} immutable=bool kind=string metadata=ObjectMeta stringData={string} type=string
SecretEnvSource: name=string optional=bool
SecretKeySelector: key=string name=string optional=bool
SecretProjection: items=[KeyToPath] name=string optional=bool
SecretVolumeSource: defaultMode=int items=[KeyToPath] optional=bool secretName=string
SecurityContext: allowPrivilegeEscalation=bool appArmorProfile=AppArmorProfile capabilities=Capabilities
  privileged=bool procMount=string readOnlyRootFilesystem=bool runAsGroup=int runAsNonRoot=bool runAsUser=int
  seLinuxOptions=SELinuxOptions seccompProfile=SeccompProfile windowsOptions=WindowsSecurityContextOptions
Service: apiVersion=string kind=string metadata=ObjectMeta spec=ServiceSpec status=ServiceStatus
ServiceAccount: apiVersion=string automountServiceAccountToken=bool imagePullSecrets=[LocalObjectReference]
  kind=string metadata=ObjectMeta secrets=[ObjectReference]:name
ServiceAccountTokenProjection: audience=string expirationSeconds=int path=string
ServicePort: appProtocol=string name=string nodePort=int port=int protocol=string targetPort=intorstring
ServiceSpec: allocateLoadBalancerNodePorts=bool clusterIP=string clusterIPs=[string] externalIPs=[string]
  externalName=string externalTrafficPolicy=string healthCheckNodePort=int internalTrafficPolicy=string
  ipFamilies=[string] ipFamilyPolicy=string loadBalancerClass=string loadBalancerIP=string
  loadBalancerSourceRanges=[string] ports=[ServicePort]:port publishNotReadyAddresses=bool selector={string}
  sessionAffinity=string sessionAffinityConfig=SessionAffinityConfig trafficDistribution=string type=string
ServiceStatus: conditions=[Condition]:type loadBalancer=LoadBalancerStatus
SessionAffinityConfig: clientIP=ClientIPConfig
SleepAction: seconds=int
StorageOSVolumeSource: fsType=string readOnly=bool secretRef=LocalObjectReference volumeName=string
  volumeNamespace=string
Sysctl: name=string value=string
TCPSocketAction: host=string port=intorstring
Taint: effect=string key=string timeAdded=time value=string
Toleration: effect=string key=string operator=string tolerationSeconds=int value=string
TopologySpreadConstraint: labelSelector=LabelSelector matchLabelKeys=[string] maxSkew=int minDomains=int
  nodeAffinityPolicy=string nodeTaintsPolicy=string topologyKey=string whenUnsatisfiable=string
TypedLocalObjectReference: apiGroup=string kind=string name=string
TypedObjectReference: apiGroup=string kind=string name=string namespace=string
Volume: awsElasticBlockStore=AWSElasticBlockStoreVolumeSource azureDisk=AzureDiskVolumeSource
  azureFile=AzureFileVolumeSource cephfs=CephFSVolumeSource cinder=CinderVolumeSource configMap=ConfigMapVolumeSource
  csi=CSIVolumeSource downwardAPI=DownwardAPIVolumeSource emptyDir=EmptyDirVolumeSource
  ephemeral=EphemeralVolumeSource fc=FCVolumeSource flexVolume=FlexVolumeSource flocker=FlockerVolumeSource
  gcePersistentDisk=GCEPersistentDiskVolumeSource gitRepo=GitRepoVolumeSource glusterfs=GlusterfsVolumeSource
  hostPath=HostPathVolumeSource image=ImageVolumeSource iscsi=ISCSIVolumeSource name=string nfs=NFSVolumeSource
  persistentVolumeClaim=PersistentVolumeClaimVolumeSource photonPersistentDisk=PhotonPersistentDiskVolumeSource
  portworxVolume=PortworxVolumeSource projected=ProjectedVolumeSource quobyte=QuobyteVolumeSource rbd=RBDVolumeSource
  scaleIO=ScaleIOVolumeSource secret=SecretVolumeSource storageos=StorageOSVolumeSource
  vsphereVolume=VsphereVirtualDiskVolumeSource
VolumeDevice: devicePath=string name=string
VolumeMount: mountPath=string mountPropagation=string name=string readOnly=bool recursiveReadOnly=string
  subPath=string subPathExpr=string
VolumeMountStatus: mountPath=string name=string readOnly=bool recursiveReadOnly=string
VolumeProjection: clusterTrustBundle=ClusterTrustBundleProjection configMap=ConfigMapProjection
  downwardAPI=DownwardAPIProjection podCertificate=PodCertificateProjection secret=SecretProjection
  serviceAccountToken=ServiceAccountTokenProjection
VolumeResourceRequirements: limits={quantity} requests={quantity}
VsphereVirtualDiskVolumeSource: fsType=string storagePolicyID=string storagePolicyName=string volumePath=string
WeightedPodAffinityTerm: podAffinityTerm=PodAffinityTerm weight=int
WindowsSecurityContextOptions: gmsaCredentialSpec=string gmsaCredentialSpecName=string hostProcess=bool
  runAsUserName=string
"""
