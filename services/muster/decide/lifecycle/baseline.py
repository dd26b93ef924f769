"""What a pod of a submission may ask of the machine it runs on: Kubernetes' pod security level ``baseline``, and a little more.

Refused: privileged containers, the host's network, processes, files and ports, added capabilities, unmasked /proc, other
seccomp or SELinux settings, service accounts that the tenant has not, a node or a scheduler chosen past Muster, and the
annotations by which Muster and device plugins hand cards over.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.decide.findings import Problem
from muster.model.policy import Policy, Tenant

CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
        "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    }
)  # fmt: skip
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
OURS_ALONE = frozenset(
    {
        "muster.dev/fence", "muster.dev/cards", "muster.dev/tenant", "muster.dev/submission",
        "volcano.sh/gpu-index", "volcano.sh/gpu-assigned", "volcano.sh/predicate-time",
        "volcano.sh/vgpu-node", "volcano.sh/vgpu-time", "volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate",
        "volcano.sh/bind-phase", "volcano.sh/bind-time",
        "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name",
        "volcano.sh/job-version", "volcano.sh/job-retry-count", "volcano.sh/task-spec",
    }
)  # fmt: skip
"""Annotations and labels that are written by Muster; a submission that carried them could take others' cards."""


def template_problems(template: Mapping[str, Any], *, path: str, tenant: Tenant, policy: Policy) -> Iterable[Problem]:
    """Everything in a pod template that its tenant may not ask for."""
    metadata = template.get("metadata") or {}
    yield from metadata_problems(metadata, path=f"{path}.metadata")
    spec: Mapping[str, Any] = template.get("spec") or {}
    here = f"{path}.spec"
    for field in HOST_FIELDS:
        if spec.get(field):
            yield Problem(field=f"{here}.{field}", value="true", message="pods may not use the host's namespaces")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    if tenant.service_accounts and account not in tenant.service_accounts:
        allowed = ", ".join(tenant.service_accounts)
        yield Problem(field=f"{here}.serviceAccountName", value=str(account), message=f"must be one of {allowed}")
    if spec.get("nodeName"):
        message = "the node is chosen by the scheduler; use nodeSelector to restrict it"
        yield Problem(field=f"{here}.nodeName", value=str(spec["nodeName"]), message=message)
    scheduler = spec.get("schedulerName")
    if scheduler and scheduler not in policy.scheduler_names:
        names = ", ".join(sorted(policy.scheduler_names))
        yield Problem(
            field=f"{here}.schedulerName", value=str(scheduler), message=f"must be one of {names}, or left out"
        )
    for number, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("hostPath") is not None:
            path_there = str((volume.get("hostPath") or {}).get("path") or "")
            message = "host paths are not allowed; use a PersistentVolumeClaim or emptyDir"
            yield Problem(field=f"{here}.volumes[{number}].hostPath", value=path_there, message=message)
    yield from _security_problems(spec.get("securityContext") or {}, f"{here}.securityContext")
    if spec.get("ephemeralContainers"):
        yield Problem(field=f"{here}.ephemeralContainers", value="[…]", message="not allowed in a job")
    for group in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(group) or ()):
            yield from _container_problems(container, f"{here}.{group}[{number}]")


def metadata_problems(metadata: Mapping[str, Any], *, path: str) -> Iterable[Problem]:
    """Owner references, finalizers and annotations that are not a submission's to set."""
    for field in ("ownerReferences", "finalizers"):
        if metadata.get(field):
            yield Problem(field=f"{path}.{field}", value="[…]", message="not allowed in a submission")
    for group in ("annotations", "labels"):
        marks = metadata.get(group) or {}
        if not isinstance(marks, Mapping):
            yield Problem(field=f"{path}.{group}", value=str(marks)[:80], message="must be a mapping of texts")
            continue
        for name in sorted(OURS_ALONE & marks.keys()):
            message = "is written by Muster alone"
            yield Problem(field=f'{path}.{group}["{name}"]', value=str(marks[name])[:80], message=message)


def _container_problems(container: Mapping[str, Any], path: str) -> Iterable[Problem]:
    image = container.get("image")
    if not isinstance(image, str) or not image or any(character.isspace() for character in image):
        message = "needs an image such as registry.example.com/llm:3, without spaces"
        yield Problem(field=f"{path}.image", value=str(image or ""), message=message)
    for number, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort"):
            message = "host ports are not allowed"
            yield Problem(field=f"{path}.ports[{number}].hostPort", value=str(port["hostPort"]), message=message)
    context = container.get("securityContext") or {}
    here = f"{path}.securityContext"
    if context.get("privileged"):
        yield Problem(field=f"{here}.privileged", value="true", message="privileged containers are not allowed")
    added = {str(name) for name in (context.get("capabilities") or {}).get("add") or ()}
    for name in sorted(added - CAPABILITIES):
        yield Problem(field=f"{here}.capabilities.add", value=name, message="this capability is not allowed")
    if context.get("procMount") not in {None, "Default"}:
        yield Problem(field=f"{here}.procMount", value=str(context["procMount"]), message="must be Default")
    yield from _security_problems(context, here)


def _security_problems(context: Mapping[str, Any], path: str) -> Iterable[Problem]:
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield Problem(field=f"{path}.seccompProfile.type", value="Unconfined", message="must not be Unconfined")
    if (context.get("appArmorProfile") or {}).get("type") == "Unconfined":
        yield Problem(field=f"{path}.appArmorProfile.type", value="Unconfined", message="must not be Unconfined")
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield Problem(field=f"{path}.windowsOptions.hostProcess", value="true", message="not allowed")
    options = context.get("seLinuxOptions") or {}
    if options.get("type", "") not in SELINUX_TYPES:
        yield Problem(
            field=f"{path}.seLinuxOptions.type", value=str(options["type"]), message="this type is not allowed"
        )
    for name in ("user", "role"):
        if options.get(name):
            yield Problem(field=f"{path}.seLinuxOptions.{name}", value=str(options[name]), message="must not be set")
    for sysctl in context.get("sysctls") or ():
        if sysctl.get("name") not in SYSCTLS:
            yield Problem(field=f"{path}.sysctls", value=str(sysctl.get("name")), message="this sysctl is not allowed")
