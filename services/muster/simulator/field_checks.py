"""Field validation of request bodies: unknown fields by fieldValidation (Ignore, Warn, Strict), wrong types refused.

Custom resources are checked against their CRD's schema, built-in kinds against the compact schemas of `core_schema`;
kinds without one are stored as sent.
"""

from muster.simulator.core_schema import WrongTypeError, check_core, check_metadata
from muster.simulator.errors import JsonObject, bad_request
from muster.simulator.routing import Target
from muster.simulator.schema import prune

_MODES = frozenset({"", "Ignore", "Warn", "Strict"})


def checked_fields(target: Target, obj: JsonObject, mode: str) -> dict[str, str]:
    """Drop unknown fields in place; the answer is the headers with warnings; 400 for Strict or a wrong type."""
    if mode not in _MODES:
        raise bad_request(f"fieldValidation: {mode!r} must be Ignore, Warn or Strict")
    kind = target.resource_type.kind
    try:
        if target.resource_type.custom:
            served = target.resource_type.version(target.version)
            unknown = check_metadata(obj)
            if served is not None and served.schema is not None:
                unknown += prune(served.schema, obj)
        else:
            unknown = check_core(target.resource_type.key, obj)
    except WrongTypeError as error:
        raise bad_request(f'{kind} in version "{target.version}" cannot be handled as a {kind}: {error}') from error
    if not unknown or mode == "Ignore":
        return {}
    texts = [f'unknown field "{path}"' for path in unknown]
    if mode == "Strict":
        raise bad_request(
            f'{kind} in version "{target.version}" cannot be handled as a {kind}: strict decoding error: '
            + ", ".join(texts)
        )
    warning = ", ".join(f'299 - "{text}"' for text in (text.replace('"', '\\"') for text in texts[:10]))
    return {"Warning": warning}
