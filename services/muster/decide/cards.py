"""How people ask for cards, and how a decision about cards is written on a pod.

    nvidia.com/gpu: 2                                    two whole cards
    volcano.sh/gpu-memory: 5120, volcano.sh/gpu-core: 30 one share of one card: 5 GiB of memory, 30 % of its core
    both                                                 one share (the whole card is taken out, see `normalise_containers`)
    volcano.sh/vgpu-number: 1, vgpu-memory, vgpu-cores   one share in the vGPU plugin's words; without amounts: whole cards
    volcano.sh/vgpu-number: 2, vgpu-memory, vgpu-cores   two shares of that size, on two cards of one node

Names are matched without case, and every spelling in circulation is known. Card memory is in MiB, core in percent.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.decide.findings import Note, Problem
from muster.model.pods import Share
from muster.model.policy import Policy
from muster.model.quantity import QuantityError, parse_quantity, to_units
from muster.model.units import CardCount, CorePercent, MiB

GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_CORE = "volcano.sh/gpu-core"
GPU_NUMBER = "volcano.sh/gpu-number"
VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_CORE = "volcano.sh/vgpu-cores"
VGPU_PERCENTAGE = "volcano.sh/vgpu-memory-percentage"

SPELLINGS: Mapping[str, str] = {
    GPU_MEMORY: GPU_MEMORY,
    "volcano.sh/gpu-mem": GPU_MEMORY,
    "nvidia.com/gpumem": GPU_MEMORY,
    GPU_CORE: GPU_CORE,
    "volcano.sh/gpu-cores": GPU_CORE,
    "volcano.sh/gpu-core.percentage": GPU_CORE,
    "volcano.sh/gpu-core-percentage": GPU_CORE,
    "nvidia.com/gpucores": GPU_CORE,
    GPU_NUMBER: GPU_NUMBER,
    VGPU_NUMBER: VGPU_NUMBER,
    VGPU_MEMORY: VGPU_MEMORY,
    VGPU_CORE: VGPU_CORE,
    "volcano.sh/vgpu-core": VGPU_CORE,
    VGPU_PERCENTAGE: VGPU_PERCENTAGE,
}
"""Lower-case spelling → the name that device plugins know."""

MEMORY_NAMES = frozenset({GPU_MEMORY, VGPU_MEMORY})
CORE_NAMES = frozenset({GPU_CORE, VGPU_CORE})
NUMBER_NAMES = frozenset({GPU_NUMBER, VGPU_NUMBER})
VGPU_NAMES = frozenset({VGPU_NUMBER, VGPU_MEMORY, VGPU_CORE, VGPU_PERCENTAGE})

VISIBLE_DEVICES = "muster.dev/visible-devices"
"""Pod annotation: what the containers' NVIDIA_VISIBLE_DEVICES is, by the downward API. A Binding fills it in."""
VISIBLE_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = "none"
VISIBLE_SOURCE = {"fieldRef": {"fieldPath": f"metadata.annotations['{VISIBLE_DEVICES}']"}}

MIB_PER_GIB = 1024
LARGEST_SANE_MIB = 2**20
"""A card with 1 TiB does not exist: what is larger was written in bytes."""


def canonical(name: str, card_resources: Iterable[str] = ("nvidia.com/gpu",)) -> str:
    """The resource name that device plugins know, whatever its spelling; names that mean no card are unchanged."""
    lower = name.lower()
    known = SPELLINGS.get(lower)
    if known is not None:
        return known
    return lower if lower in card_resources else name


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What one container, or one pod, asks of cards."""

    cards: int = 0
    memory_mib: int = 0
    core_percent: int = 0
    card_resource: str = ""
    count: int = 1
    """Shares, each on another card."""

    @property
    def any(self) -> bool:
        """It asks for cards in any way."""
        return bool(self.cards) or self.shared

    @property
    def shared(self) -> bool:
        """It asks a share of a card."""
        return bool(self.memory_mib or self.core_percent)

    def plus(self, other: "Asked") -> "Asked":
        """Both together, as two containers of one pod."""
        resource = self.card_resource or other.card_resource
        cards = self.cards + other.cards
        if self.shared and other.shared and max(self.count, other.count) > 1:
            # Shares on several cards each: every one gets a card of its own, as large as the largest of them.
            largest = self.at_least(other)
            return msgspec.structs.replace(largest, cards=cards, card_resource=resource, count=self.count + other.count)
        return Asked(
            cards=cards,
            memory_mib=self.memory_mib + other.memory_mib,
            core_percent=self.core_percent + other.core_percent,
            card_resource=resource,
            count=max(self.count, other.count),
        )

    def at_least(self, other: "Asked") -> "Asked":
        """The larger on every side, as containers that run one after another."""
        return Asked(
            cards=max(self.cards, other.cards),
            memory_mib=max(self.memory_mib, other.memory_mib),
            core_percent=max(self.core_percent, other.core_percent),
            card_resource=self.card_resource or other.card_resource,
            count=max(self.count, other.count),
        )

    def settled(self) -> tuple[CardCount, Share | None]:
        """Whole cards or a share, never both: the share wins."""
        if self.shared:
            share = Share(
                memory_mib=MiB(self.memory_mib), core_percent=CorePercent(self.core_percent), count=self.count
            )
            return CardCount(0), share
        return CardCount(self.cards), None


def asked_by(amounts: Mapping[str, Any], *, card_resources: Iterable[str] = ("nvidia.com/gpu",)) -> Asked:
    """What a container's resource amounts ask of cards.

    What is asked in the vGPU plugin's words can be had on its nodes only: its `card_resource` is ``volcano.sh/vgpu-number``.
    """
    cards, memory, core, number, resource = 0, 0, 0, 0, ""
    vgpu = False
    for name, value in amounts.items():
        known = canonical(name, card_resources)
        if known in VGPU_NAMES and to_units(value):
            vgpu = True
        if known in MEMORY_NAMES:
            memory = to_units(value)
        elif known in CORE_NAMES:
            core = to_units(value)
        elif known in NUMBER_NAMES:
            number = to_units(value)
        elif known in card_resources:
            cards += to_units(value)
            resource = known if to_units(value) else resource
    resource = VGPU_NUMBER if vgpu and (memory or core or not cards) else resource
    if not memory and not core:
        return Asked(cards=number + cards, card_resource=resource)
    if number > 1 and not vgpu:
        return Asked(cards=number + cards, card_resource=resource)
    return Asked(cards=cards, memory_mib=memory, core_percent=core, card_resource=resource, count=max(number, 1))


class Normalised(msgspec.Struct, frozen=True, kw_only=True):
    """A pod template with its cards in one form, what was changed, and what cannot be right."""

    template: dict[str, Any]
    notes: tuple[Note, ...] = ()
    problems: tuple[Problem, ...] = ()


def normalise_containers(
    template: Mapping[str, Any], *, policy: Policy | None = None, largest_card_mib: int = 0
) -> Normalised:
    """Bring the card resources of a pod template into one form.

    Names get the spelling that device plugins know; a whole card beside a share is taken out with a note; amounts that
    nobody can mean become problems that propose what was likely meant. The template given is not changed.

    Args:
        template: a PodTemplateSpec, or a Pod: a mapping with ``spec``.
        policy: what counts as a card and as absurdly small.
        largest_card_mib: memory of the largest card of the cluster, 0 when it is not known.
    """
    policy = policy or Policy()
    notes: list[Note] = []
    problems: list[Problem] = []
    spec = dict(template.get("spec") or {})
    for group in ("initContainers", "containers"):
        containers = spec.get(group)
        if not containers:
            continue
        spec[group] = [
            _normalise_container(
                container,
                path=f"spec.{group}[{number}].resources",
                policy=policy,
                largest=largest_card_mib,
                notes=notes,
                problems=problems,
            )
            for number, container in enumerate(containers)
        ]
    made = {**template, "spec": spec}
    return Normalised(template=_with_visible_devices(made, notes), notes=tuple(notes), problems=tuple(problems))


def _with_visible_devices(template: dict[str, Any], notes: list[Note]) -> dict[str, Any]:
    """Let containers with a share read from an annotation which cards they may see.

    Where no plugin hands shares over, nothing else tells them. The variable of a container wins over a plugin's, so a Binding
    fills the annotation in on every node.
    """
    spec = dict(template["spec"])
    wired = False
    for group in ("initContainers", "containers"):
        if not spec.get(group):
            continue
        containers = []
        for number, container in enumerate(spec[group]):
            if not _asks_share(container):
                containers.append(container)
                continue
            wired = True
            others = [one for one in container.get("env") or () if one.get("name") != VISIBLE_VARIABLE]
            own = [one for one in container.get("env") or () if one.get("name") == VISIBLE_VARIABLE]
            if any(one.get("valueFrom") != VISIBLE_SOURCE for one in own):
                message = f"{VISIBLE_VARIABLE} is set by the placement of a share; the value given was replaced"
                notes.append(Note(field=f"spec.{group}[{number}].env", message=message))
            containers.append({**container, "env": [*others, {"name": VISIBLE_VARIABLE, "valueFrom": VISIBLE_SOURCE}]})
        spec[group] = containers
    if not wired:
        return template
    metadata = dict(template.get("metadata") or {})
    metadata["annotations"] = {VISIBLE_DEVICES: NO_DEVICES, **(metadata.get("annotations") or {})}
    return {**template, "metadata": metadata, "spec": spec}


def _asks_share(container: Mapping[str, Any]) -> bool:
    resources = container.get("resources") or {}
    merged = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(is_share(merged, name) for name in MEMORY_NAMES | CORE_NAMES)


def _normalise_container(
    container: Mapping[str, Any],
    *,
    path: str,
    policy: Policy,
    largest: int,
    notes: list[Note],
    problems: list[Problem],
) -> dict[str, Any]:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    side = "limits" if limits else "requests"
    named: dict[str, dict[str, Any]] = {}
    for name, amounts in (("limits", limits), ("requests", requests)):
        renamed: dict[str, Any] = {}
        for resource, value in amounts.items():
            known = canonical(resource, policy.card_resources)
            if known != resource:
                field = f'{path}.{name}["{resource}"]'
                notes.append(Note(field=field, message=f"{resource} is read as {known}"))
            renamed[known] = value
        named[name] = renamed
    if largest:
        _percentage_as_memory(named, path=path, largest=largest, notes=notes)
    merged = {**named["requests"], **named["limits"]}
    found = list(_amount_problems(merged, path=f"{path}.{side}", policy=policy, largest=largest))
    problems.extend(found)
    if any(is_share(merged, name) for name in MEMORY_NAMES | CORE_NAMES):
        for resource in policy.card_resources:
            if resource not in merged:
                continue
            field = f'{path}.{side}["{resource}"]'
            count = merged[resource]
            if _units(count) > 1:
                message = f"{count} cards beside a share: a pod may have one share of one card, or whole cards"
                problems.append(Problem(field=field, value=str(count), message=message))
            for amounts in named.values():
                amounts.pop(resource, None)
            if _units(count) == 1:
                message = f"{resource}: 1 beside a share means one share of one card; the whole card was taken out"
                notes.append(Note(field=field, message=message))
    if not named["limits"] and not named["requests"]:
        return dict(container)
    kept = {name: amounts for name, amounts in named.items() if amounts}
    others = {name: value for name, value in resources.items() if name not in {"limits", "requests"}}
    return {**container, "resources": {**others, **kept}}


def _percentage_as_memory(named: dict[str, dict[str, Any]], *, path: str, largest: int, notes: list[Note]) -> None:
    """A percentage of a card's memory becomes MiB, by the largest card of the cluster."""
    for side, amounts in named.items():
        percent = _units(amounts.get(VGPU_PERCENTAGE, 0))
        if not 0 < percent <= 100 or VGPU_MEMORY in amounts:
            continue
        del amounts[VGPU_PERCENTAGE]
        amounts[VGPU_MEMORY] = str(largest * percent // 100)
        message = (
            f"{percent} % of a card is read as {largest * percent // 100} MiB: the largest card here has {largest}"
        )
        notes.append(Note(field=f'{path}.{side}["{VGPU_PERCENTAGE}"]', message=message))


def is_share(amounts: Mapping[str, Any], name: str) -> bool:
    """The named share resource stands there with an amount above 0 (or one that cannot be read)."""
    return name in amounts and _units(amounts[name]) != 0


def _units(value: Any) -> int:
    try:
        return to_units(value)
    except QuantityError:
        return -1


def _amount_problems(amounts: Mapping[str, Any], *, path: str, policy: Policy, largest: int) -> Iterable[Problem]:
    for name, value in amounts.items():
        if name not in MEMORY_NAMES | CORE_NAMES | NUMBER_NAMES | {VGPU_PERCENTAGE, *policy.card_resources}:
            continue
        field = f'{path}["{name}"]'
        try:
            amount = parse_quantity(value)
        except QuantityError as error:
            yield Problem(field=field, value=str(value), message=str(error))
            continue
        message = ""
        if amount < 0:
            message = f"{value} is below 0"
        elif name in CORE_NAMES and 0 < amount < 1:
            message = f"{value} is less than one percent. Did you mean {int(amount * 100)} ({int(amount * 100)} %)?"
        elif amount != int(amount):
            message = f"{value} is not a whole number; for a part of a card ask {GPU_MEMORY} (MiB) or {GPU_CORE} (%)"
        elif name in CORE_NAMES and amount > 100:
            message = f"{value} is above 100 percent of a card; for more than one card ask whole cards"
        elif name in MEMORY_NAMES:
            message = memory_doubt(
                int(amount), smallest=policy.min_share_memory_mib, largest=largest, written=str(value)
            )
        elif name == VGPU_PERCENTAGE and amount > 0:
            message = f"a percentage of an unknown card's memory cannot be placed; ask {VGPU_MEMORY} in MiB"
        if message:
            yield Problem(field=field, value=str(value), message=message)


def memory_doubt(amount: int, *, smallest: int, largest: int = 0, written: str = "") -> str:
    """Why nobody can mean this much card memory (MiB), with the likely meaning; '' when it is plausible.

    Args:
        amount: MiB asked.
        smallest: below this it is a unit mistake.
        largest: memory of the largest card in MiB, 0 when unknown.
        written: the amount as it stands in the manifest.
    """
    here = f"; a card here has {largest}" if largest else ""
    # As many GiB as the largest card has, or fewer: nobody asks for 80 MiB of an 80 GiB card.
    if amount > 0 and (amount < smallest or amount * MIB_PER_GIB <= largest):
        meant = amount * MIB_PER_GIB
        return f"{amount} is {amount} MiB{here}. Did you mean {meant} ({amount} GiB)?"
    if amount > LARGEST_SANE_MIB:
        mib = amount // 2**20
        meant_text = f"{mib} ({mib / MIB_PER_GIB:g} GiB)" if mib else "an amount in MiB"
        return f"{written or amount} is {amount} MiB{here}: this resource counts MiB. Did you mean {meant_text}?"
    return ""


def node_memory_doubt(total: int, *, cards: int) -> str:
    """Why ``volcano.sh/gpu-memory`` of a whole node (MiB) cannot be right, with the likely meaning; '' when it can.

    Args:
        total: MiB of all cards of the node together.
        cards: how many cards it has; 0 when unknown.
    """
    each = total // max(cards, 1)
    if each < MIB_PER_GIB:
        meant = each * MIB_PER_GIB * max(cards, 1)
        of_cards = f" for {cards} cards" if cards > 1 else ""
        return f"{total} is {total} MiB{of_cards}: no card is so small. Did you mean {meant} ({each} GiB a card)?"
    if each > LARGEST_SANE_MIB:
        mib = total // 2**20
        meant_text = f"{mib} ({mib / MIB_PER_GIB:g} GiB)" if mib else "an amount in MiB"
        return f"{total} is {total} MiB: this resource counts MiB. Did you mean {meant_text}?"
    return ""
