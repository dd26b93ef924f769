"""What in a policy contradicts itself: each value is fine, but not together with another."""

from collections.abc import Iterable

from muster.decide.findings import Problem
from muster.model.policy import Policy, Tenant


def contradictions(policy: Policy) -> tuple[Problem, ...]:
    """Problems that no single value shows."""
    return (*_orders(policy), *_names(policy), *_tenants(policy.tenants))


def _orders(policy: Policy) -> Iterable[Problem]:
    """Values that must not be above others."""
    debounce, timeouts, preemption = policy.debounce, policy.timeouts, policy.preemption
    pairs = (
        ("debounce.quiet", debounce.quiet, "debounce.longest", debounce.longest),
        ("timeouts.backoff_initial", timeouts.backoff_initial, "timeouts.backoff_max", timeouts.backoff_max),
        ("preemption.grace", preemption.grace, "preemption.grace_max", preemption.grace_max),
        ("preemption.min_runtime", preemption.min_runtime, "preemption.min_runtime_max", preemption.min_runtime_max),
    )
    for low_name, low, high_name, high in pairs:
        if low > high:
            yield Problem(field=low_name, value=f"{low:g}", message=f"{low:g} is above {high_name}, which is {high:g}")


def _names(policy: Policy) -> Iterable[Problem]:
    if policy.scheduler_name in policy.aliases:
        yield Problem(
            field="aliases",
            value=policy.scheduler_name,
            message=f"{policy.scheduler_name} is scheduler_name already; aliases are other names",
        )
    for field, names in (
        ("aliases", policy.aliases),
        ("topology_levels", policy.topology_levels),
        ("card_resources", policy.card_resources),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            yield Problem(field=field, value=twice[0], message=f"{', '.join(twice)} stands there more than once")


def _tenants(tenants: dict[str, Tenant]) -> Iterable[Problem]:
    for name, tenant in tenants.items():
        if tenant.namespaces and tenant.default_namespace not in tenant.namespaces:
            yield Problem(
                field=f"tenants.{name}.default_namespace",
                value=tenant.default_namespace,
                message=f"{tenant.default_namespace} is none of the tenant's namespaces; "
                f"name one of {', '.join(tenant.namespaces)}",
            )
