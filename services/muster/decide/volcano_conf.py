"""volcano-scheduler.conf as a policy: actions switch features on, arguments become weights, and every line is accounted for.

    document, lines ─► Imported: what changes in policy.yaml, and of every line whether it is taken, does the same here,
                       differs, or is not understood

Taken over are the actions preempt and reclaim (an action that is not listed is off: observe), the weights of binpack, and
the waiting time of sla. Everything else is told by the tables of `muster.decide.volcano_plugins`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from muster.decide.spelling import likely, meant
from muster.decide.volcano_plugins import (
    ACTION_ARGUMENTS,
    ACTIONS,
    ARGUMENTS,
    PLUGINS,
    PREFIXES,
    SWITCHES,
    TOP,
    Outcome,
    Told,
)
from muster.model.durations import DurationError, parse_duration
from muster.model.policy import Policy

BINPACK = {"binpack.weight": "weight", "binpack.cpu": "cpu", "binpack.memory": "memory"}
RESOURCES = "binpack.resources"
CARD_NAMES = frozenset({"gpu", "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"})  # fmt: skip
"""Resources beside those of the policy that stand for cards."""
LONGEST_WAIT = "sla-waiting-time"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one thing that the file says."""

    line: int
    """From 1; 0 when it is about the file as a whole."""
    field: str
    value: str
    outcome: Outcome
    message: str


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The policy that stands for the file, and the account of everything in it."""

    changes: dict[str, dict[str, Any]]
    """What policy.yaml has to say; the rest is its defaults."""
    accounts: tuple[Account, ...]
    problems: tuple[Account, ...] = ()
    """What keeps it from being read as such a file at all."""


def is_volcano_conf(document: Any) -> bool:
    """Whether a document looks like one: tiers of plugins, or actions in one text."""
    return (
        isinstance(document, Mapping)
        and "kind" not in document
        and ("tiers" in document or "configurations" in document or isinstance(document.get("actions"), str))
    )


def import_conf(document: Any, lines: Mapping[str, int], *, card_resources: Sequence[str] = ()) -> Imported:
    """What a configuration becomes; ``lines`` tells where each path of it stands."""
    reader = _Reader(lines, card_resources or Policy().card_resources)
    if not isinstance(document, Mapping):
        reader.problem("", document, "a mapping with actions and tiers belongs here")
    else:
        reader.read(document)
    accounts = sorted(reader.accounts, key=lambda one: one.line)
    return Imported(changes=reader.changes, accounts=tuple(accounts), problems=tuple(reader.problems))


class _Reader:
    def __init__(self, lines: Mapping[str, int], card_resources: Sequence[str]) -> None:
        self._lines = lines
        self._cards = frozenset(card_resources) | CARD_NAMES
        self.changes: dict[str, dict[str, Any]] = {}
        self.accounts: list[Account] = []
        self.problems: list[Account] = []

    def tell(self, field: str, value: Any, told: Told) -> None:
        line = self._lines.get(field, 0)
        self.accounts.append(
            Account(line=line, field=field, value=_short(value), outcome=told.outcome, message=told.message)
        )

    def unknown(self, field: str, value: Any, message: str) -> None:
        self.tell(field, value, Told(Outcome.UNKNOWN, message))

    def problem(self, field: str, value: Any, message: str) -> None:
        line = self._lines.get(field, 0)
        self.problems.append(
            Account(line=line, field=field, value=_short(value), outcome=Outcome.UNKNOWN, message=message)
        )

    def take(self, section: str, name: str, value: Any) -> None:
        self.changes.setdefault(section, {})[name] = value

    # --- the whole ---------------------------------------------------------------------------------------------------

    def read(self, document: Mapping[Any, Any]) -> None:
        for key in document:
            if str(key) not in TOP:
                self.unknown(str(key), document[key], f"no key of such a file{meant(str(key), TOP)}")
        self._actions(document.get("actions"))
        names = list(self._tiers(document.get("tiers")))
        if "proportion" in names and "capacity" in names:
            self.problem("tiers", "", "proportion and capacity exclude each other in Volcano")
        if "binpack" not in names:
            self.tell("tiers", "", Told(Outcome.DIFFERS, "binpack is not listed; here nodes are filled all the same, by the defaults of packing"))  # fmt: skip
        for key in ("configurations", "configs"):
            if key in document:
                self._configurations(key, document[key])
        for key in ("metrics", "metricsConfiguration"):
            if key in document:
                self.tell(key, document[key], Told(Outcome.DIFFERS, "what nodes really use is not looked at"))

    def _actions(self, text: Any) -> None:
        if text is None:
            text = "enqueue, allocate, backfill"
            self.tell("actions", "", Told(Outcome.SAME, f"not there: Volcano takes {text}"))
        if not isinstance(text, str):
            self.problem("actions", text, 'a text such as "enqueue, allocate, backfill" belongs here')
            return
        listed = [name.strip() for name in text.split(",") if name.strip()]
        known: set[str] = set()
        for name in listed:
            near = likely(name, ACTIONS, cutoff=0.95)
            if name in ACTIONS:
                known.add(name)
                self.tell("actions", name, ACTIONS[name])
            elif near:
                known.add(near)
                told = ACTIONS[near]
                self.tell("actions", name, told._replace(message=f"{told.message}; Volcano itself reads only {near}"))
            else:
                self.unknown("actions", name, f"no action {name} is known{meant(name, ACTIONS)}")
        for feature, names in (("preempt", ("preempt", "gangpreempt")), ("reclaim", ("reclaim", "gangreclaim"))):
            is_on = bool(known.intersection(names))
            self.take("actions", feature, "act" if is_on else "observe")
            if not is_on:
                self.tell("actions", text, Told(Outcome.TAKEN, f"{feature} is not listed; actions.{feature}: observe"))
        if "allocate" not in known:
            self.take("actions", "bind", "observe")
            self.tell("actions", text, Told(Outcome.TAKEN, "allocate is not listed; actions.bind: observe"))

    def _tiers(self, tiers: Any) -> Iterable[str]:
        if tiers is None:
            self.problem("tiers", "", "tiers of plugins are missing; without them Volcano itself starts nothing")
            return
        if not isinstance(tiers, list):
            self.problem("tiers", tiers, "a list of tiers belongs here, each with plugins")
            return
        for number, tier in enumerate(tiers):
            field = f"tiers[{number}]"
            plugins = tier.get("plugins") if isinstance(tier, Mapping) else None
            if not isinstance(plugins, list):
                self.problem(field, tier, "a mapping with a list of plugins belongs here")
                continue
            for key in tier:
                if key != "plugins":
                    self.unknown(f"{field}.{key}", tier[key], "a tier has plugins and nothing else")
            for place, plugin in enumerate(plugins):
                yield from self._plugin(f"{field}.plugins[{place}]", plugin)

    def _plugin(self, field: str, plugin: Any) -> Iterable[str]:
        name = str(plugin.get("name") or "") if isinstance(plugin, Mapping) else ""
        if not name:
            self.problem(field, plugin, "a plugin has a name")
            return
        told = PLUGINS.get(name)
        if told is None:
            hint = f"{name} is an action: list it under actions" if name in ACTIONS else f"no plugin {name} is known"
            self.unknown(f"{field}.name", name, hint + ("" if name in ACTIONS else meant(name, PLUGINS)))
        else:
            self.tell(f"{field}.name", name, told)
        for key, value in plugin.items():
            if key == "name":
                continue
            if key == "arguments":
                self._plugin_arguments(f"{field}.arguments", name, value)
            else:
                self._switch(f"{field}.{key}", name, str(key), value)
        if name == "binpack" and not plugin.get("arguments"):
            self._binpack(f"{field}.name", {})
        yield name

    def _switch(self, field: str, plugin: str, key: str, value: Any) -> None:
        what = SWITCHES.get(key)
        if what is None:
            self.unknown(field, value, f"no switch {key} of a plugin is known{meant(key, SWITCHES)}")
        elif not isinstance(value, bool):
            self.unknown(field, value, "true or false belongs here")
        elif plugin not in PLUGINS:
            self.unknown(field, value, f"it switches a plugin that is not known, {plugin}")
        elif value:
            self.tell(field, value, Told(Outcome.SAME, f"{what} is always judged"))
        elif (plugin, key) == ("gang", "enablePreemptable"):
            self.tell(field, value, Told(Outcome.SAME, "a job may lose pods below its minimum; it then leaves whole, as Volcano's default has it"))  # fmt: skip
        elif (plugin, key) == ("drf", "enablePreemptable"):
            self.tell(field, value, Told(Outcome.SAME, "dominant shares say nothing about who is preempted"))
        else:
            self.tell(field, value, Told(Outcome.DIFFERS, f"{what} cannot be switched off for one plugin"))

    def _plugin_arguments(self, field: str, plugin: str, arguments: Any) -> None:
        if not isinstance(arguments, Mapping):
            if arguments is not None:
                self.problem(field, arguments, "a mapping of arguments belongs here")
            return
        if plugin == "binpack":
            self._binpack(field, arguments)
            return
        for key, value in arguments.items():
            if plugin == "sla" and key == LONGEST_WAIT:
                self._longest_wait(f"{field}.{key}", value)
            else:
                self._argument(f"{field}.{key}", f"plugin {plugin}", str(key), value, ARGUMENTS.get(plugin, {}), plugin)

    def _argument(  # noqa: PLR0917 - where it stands, whose it is, what it says
        self, field: str, owner: str, key: str, value: Any, known: Mapping[str, Told], plugin: str = ""
    ) -> None:
        beginnings = PREFIXES.get(plugin, {})
        told = known.get(key) or next((told for start, told in beginnings.items() if key.startswith(start)), None)
        if told is None:
            self.unknown(field, value, f"{owner} has no argument {key}{meant(key, known, cutoff=0.8)}")
        elif told.outcome is Outcome.SAME and (value is False or value == "false"):
            self.tell(field, value, Told(Outcome.DIFFERS, f"{told.message}; that cannot be switched off"))
        elif key == "deviceshare.SchedulePolicy" and value == "binpack":
            self.tell(field, value, Told(Outcome.SAME, told.message))
        else:
            self.tell(field, value, told)

    # --- what becomes values -----------------------------------------------------------------------------------------

    def _binpack(self, field: str, arguments: Mapping[Any, Any]) -> None:
        """Volcano's own defaults are 1; a card has a weight there only when it is named."""
        listed = [one.strip() for one in str(arguments.get(RESOURCES) or "").split(",") if one.strip()]
        has_cards = False
        for key, value in arguments.items():
            name, place = str(key), f"{field}.{key}"
            if name in BINPACK:
                self._weight(place, value, BINPACK[name])
            elif name == "binpack.gpu":
                has_cards = True
                self._weight(place, value, "gpu", note=f"; Volcano itself does not read it, its own spelling is {RESOURCES}")  # fmt: skip
            elif name == RESOURCES:
                has_cards |= self._resources(place, listed, arguments)
            elif name.startswith(f"{RESOURCES}."):
                resource = name.removeprefix(f"{RESOURCES}.")
                if resource not in listed:
                    self.unknown(place, value, f"{resource} is not listed under {RESOURCES}: Volcano does not read it either")  # fmt: skip
            else:
                known = (*BINPACK, RESOURCES)
                self.unknown(place, value, f"plugin binpack has no argument {name}{meant(name, known, cutoff=0.8)}")
        if not has_cards:
            gpu = Policy().packing.gpu
            self.tell(field, "", Told(Outcome.DIFFERS, f"Volcano packs by cards only when {RESOURCES} names them; here they weigh {gpu} (packing.gpu)"))  # fmt: skip

    def _resources(self, field: str, listed: list[str], arguments: Mapping[Any, Any]) -> bool:
        cards = [one for one in listed if one in self._cards]
        for resource in listed:
            key = f"{RESOURCES}.{resource}"
            place = field.removesuffix(RESOURCES) + key
            value = arguments.get(key, 1)
            where = place if place in self._lines else field
            if resource not in self._cards:
                self.tell(where, value, Told(Outcome.DIFFERS, f"{resource} has no weight here; packing has cpu, memory and gpu"))  # fmt: skip
            elif resource == cards[0]:
                self._weight(where, value, "gpu")
            else:
                self.tell(where, value, Told(Outcome.DIFFERS, f"cards of every kind weigh the same; that of {cards[0]} is taken"))  # fmt: skip
        return bool(cards)

    def _weight(self, field: str, value: Any, name: str, *, note: str = "") -> None:
        number = _whole(value)
        if number is None:
            self.unknown(field, value, "a whole number belongs here")
            return
        if number < 0:
            number, note = 1, f"; Volcano reads {value} as 1{note}"
        self.take("packing", name, number)
        self.tell(field, value, Told(Outcome.TAKEN, f"packing.{name}: {number}{note}"))

    def _longest_wait(self, field: str, value: Any) -> None:
        try:
            seconds = parse_duration(str(value))
        except DurationError as error:
            self.unknown(field, value, str(error))
            return
        self.take("waiting", "max_wait", seconds)
        self.tell(field, value, Told(Outcome.TAKEN, f"waiting.max_wait: {seconds:g}"))

    # --- configurations of actions -----------------------------------------------------------------------------------

    def _configurations(self, key: str, entries: Any) -> None:
        if key == "configs":
            self.tell(key, "", Told(Outcome.SAME, "read as configurations, which is what Volcano itself reads"))
        if not isinstance(entries, list):
            self.problem(key, entries, "a list of actions with arguments belongs here")
            return
        for number, entry in enumerate(entries):
            field = f"{key}[{number}]"
            name = str(entry.get("name") or "") if isinstance(entry, Mapping) else ""
            if not name:
                self.problem(field, entry, "a configuration has a name, which is that of an action")
                continue
            arguments = entry.get("arguments") or {}
            if name not in ACTIONS:
                hint = f"{name} is a plugin: its arguments belong to it under tiers" if name in PLUGINS else ""
                self.unknown(f"{field}.name", name, hint or f"no action {name} is known{meant(name, ACTIONS)}")
            if not isinstance(arguments, Mapping):
                self.problem(f"{field}.arguments", arguments, "a mapping of arguments belongs here")
                continue
            known = ACTION_ARGUMENTS.get(name) or ARGUMENTS.get(name, {})
            owner = f"{'action' if name in ACTIONS else 'plugin'} {name}"
            for argument, value in arguments.items():
                self._argument(f"{field}.arguments.{argument}", owner, str(argument), value, known, name)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value).strip()
    return int(text) if text.removeprefix("-").isdecimal() else None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
