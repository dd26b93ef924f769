"""Label selectors: whether a requirement holds of a value, by the rules of Kubernetes."""

from collections.abc import Iterable, Mapping

from muster.model.pods import Requirement


def requirement_holds(requirement: Requirement, value: str | None) -> bool:
    """Whether the requirement holds of a label's value (None: the label is absent)."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                actual, bound = int(value or ""), int(requirement.values[0])
            except (ValueError, IndexError):
                return False
            return actual > bound if requirement.operator == "Gt" else actual < bound
        case _:
            return False


def selects(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; one without requirements matches everything."""
    return all(requirement_holds(one, labels.get(one.key)) for one in requirements)
