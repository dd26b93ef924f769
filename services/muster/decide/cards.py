"""How people ask for cards, and how a decision about cards is written on a pod.

    nvidia.com/gpu: 2                                    two whole cards
    volcano.sh/gpu-memory: 5120, volcano.sh/gpu-core: 30 one share of one card: 5 GiB of memory, 30 % of its core
    both                                                 one share (the whole card is taken out, see `normalise_containers`)
    volcano.sh/vgpu-number: 1, vgpu-memory, vgpu-cores   one share in the vGPU plugin's words; without amounts: whole cards

Names are matched without case, and every spelling in circulation is known. Card memory is in MiB, core in percent.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.decide.findings import Note, Problem
from muster.model.instructions import Slot
from muster.model.nodes import CardMode, Node
from muster.model.pods import CardUse, Request, Share
from muster.model.policy import Policy
from muster.model.quantity import QuantityError, parse_quantity, to_units
from muster.model.units import CardCount, CardIndex, CorePercent, MiB

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

GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
CARDS = "muster.dev/cards"

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

    @property
    def shared(self) -> bool:
        """It asks a share of a card."""
        return bool(self.memory_mib or self.core_percent)

    def plus(self, other: "Asked") -> "Asked":
        """Both together, as two containers of one pod."""
        return Asked(
            cards=self.cards + other.cards,
            memory_mib=self.memory_mib + other.memory_mib,
            core_percent=self.core_percent + other.core_percent,
            card_resource=self.card_resource or other.card_resource,
        )

    def at_least(self, other: "Asked") -> "Asked":
        """The larger on every side, as containers that run one after another."""
        return Asked(
            cards=max(self.cards, other.cards),
            memory_mib=max(self.memory_mib, other.memory_mib),
            core_percent=max(self.core_percent, other.core_percent),
            card_resource=self.card_resource or other.card_resource,
        )

    def settled(self) -> tuple[CardCount, Share | None]:
        """Whole cards or a share, never both: the share wins."""
        if self.shared:
            return CardCount(0), Share(memory_mib=MiB(self.memory_mib), core_percent=CorePercent(self.core_percent))
        return CardCount(self.cards), None


def asked_by(amounts: Mapping[str, Any], *, card_resources: Iterable[str] = ("nvidia.com/gpu",)) -> Asked:
    """What a container's resource amounts ask of cards. A vGPU number above 1 with amounts counts as whole cards."""
    cards, memory, core, number, resource = 0, 0, 0, 0, ""
    for name, value in amounts.items():
        known = canonical(name, card_resources)
        if known in MEMORY_NAMES:
            memory = to_units(value)
        elif known in CORE_NAMES:
            core = to_units(value)
        elif known in NUMBER_NAMES:
            number = to_units(value)
        elif known in card_resources:
            cards += to_units(value)
            resource = known if to_units(value) else resource
    if number > 1 or (number and not memory and not core):
        return Asked(cards=number + cards, card_resource=resource)
    return Asked(cards=cards, memory_mib=memory, core_percent=core, card_resource=resource)


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
    return Normalised(template={**template, "spec": spec}, notes=tuple(notes), problems=tuple(problems))


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
        elif (
            name == VGPU_NUMBER and amount > 1 and any(is_share(amounts, other) for other in MEMORY_NAMES | CORE_NAMES)
        ):
            message = f"{value} shares in one pod are not supported; ask 1 share, or {value} whole cards"
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


class AssignedCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of annotation ``muster.dev/cards``."""

    index: int
    memory_mib: int = 0
    core_percent: int = 0
    whole: bool = False
    expected: bool = False
    """The device plugin chooses; this is what is expected of it."""


_ASSIGNED = msgspec.json.Decoder(list[AssignedCard])


def assignment_annotations(slot: Slot, node: Node, now: float) -> dict[str, str]:
    """Annotations that hand this slot's cards over, for the Binding; empty when the slot has none. `now`: Unix seconds."""
    if not slot.cards:
        return {}
    stock = node.card_mode is not CardMode.VOLCANO
    assigned = [
        AssignedCard(
            index=use.index,
            memory_mib=use.memory_mib,
            core_percent=use.core_percent,
            whole=use.whole,
            expected=stock,
        )
        for use in slot.cards
    ]
    annotations = {CARDS: msgspec.json.encode(assigned).decode()}
    if not stock:
        annotations[GPU_INDEX] = ",".join(str(use.index) for use in slot.cards)
        annotations[PREDICATE_TIME] = str(int(now * 1_000_000_000))
    return annotations


def cards_from_annotations(annotations: Mapping[str, str], request: Request | None = None) -> tuple[CardUse, ...]:
    """The card assignment that stands on a pod, () when there is none.

    Without ``muster.dev/cards`` Volcano's ``gpu-index`` is read, with amounts from the pod's request.

    Raises:
        ValueError: an annotation is there and cannot be read; the message names it.
    """
    text = annotations.get(CARDS)
    if text:
        try:
            assigned = _ASSIGNED.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"annotation {CARDS}: {text!r} is not a card assignment: {error}") from error
        return tuple(
            CardUse(
                index=CardIndex(card.index),
                memory_mib=MiB(card.memory_mib),
                core_percent=CorePercent(card.core_percent),
                whole=card.whole,
            )
            for card in assigned
        )
    listed = annotations.get(GPU_INDEX)
    if not listed:
        return ()
    try:
        indexes = [int(part) for part in listed.split(",")]
    except ValueError as error:
        raise ValueError(f'annotation {GPU_INDEX}: {listed!r} is not a list of card indexes such as "0,1"') from error
    share = request.share if request is not None else None
    return tuple(
        CardUse(index=CardIndex(index), memory_mib=share.memory_mib, core_percent=share.core_percent)
        if share is not None
        else CardUse(index=CardIndex(index), whole=True)
        for index in indexes
    )
