"""Rule I: one order in STATE although watchers are replaced while their pipelined publishes are in flight.

    API ──watch──► watcher 0 ──queue──┐ each publish expects the whole stream's last sequence
        ──watch──► watcher 1 ──queue──┴──► STATE (last message per subject) ──► reader: view of each key, and a freshness

The commit protocol's model lets every leader see the pods exactly as they were at some revision, never going back. This model shows that what a reader
makes of STATE is such a view: at the freshness of the last clock message that it took, no key is older than that.
"""

from collections.abc import Iterator

from tests.model.explore import Step
from tests.model.rules import WATCHER_RULES
from tests.model.state_stream import (
    CLOCK,
    EPOCH,
    KEY,
    NEVER,
    UNKNOWN,
    Counts,
    Message,
    Reader,
    Role,
    Version,
    Watcher,
    World,
    clock_of,
    pipeline,
    publish,
    put,
    said,
    told,
    version_at,
    with_watcher,
    without_old_epochs,
)

FAIR_ORDER = ("land", "watch", "reload", "load", "list", "announce", "start", "apply")


class WatcherProtocol:
    """Explorable model of rule I; watcher 0 publishes at the start, the reader has read everything."""

    def __init__(
        self,
        counts: Counts,
        *,
        first: tuple[bool, ...],
        changes: tuple[tuple[int, bool], ...],
        in_flight: int = 0,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self.on = frozenset(WATCHER_RULES.keys() - without)
        self.changes = changes
        start = tuple(Version(1, there=True) if there else NEVER for there in first)
        stored = [Message(0, EPOCH, 1)]
        stored += [Message(0, KEY, 1, key, version) for key, version in enumerate(start) if version.there]
        stored.append(Message(0, CLOCK, 1, -1, Version(1, there=True)))
        state = tuple(message._replace(sequence=number) for number, message in enumerate(stored, start=1))
        current = Watcher(Role.CURRENT, 1, 1, len(state), start)
        reader = Reader(len(state), 1, start, 1, 1, 0)
        history = tuple((version,) for version in start)
        self.start = World(history, 1, state, len(state), (current, Watcher()), reader, counts)
        for _ in range(in_flight):
            self.start = self._change(self.start)
            self.start = self._see(self.start, 0, self.start.watchers[0]).state

    def initial(self) -> World:
        """The first world."""
        return self.start

    def canonical(self, world: World) -> World:
        """Nothing to merge: sequences and revisions are few."""
        return world

    def violation(self, world: World) -> str:
        """A view that goes back, or that claims a freshness at which it is not true."""
        reader = world.reader
        if world.broken or reader.position < reader.ready_at:
            return world.broken
        for key, shown in enumerate(reader.view):
            truth = version_at(world.history[key], reader.fresh)
            if shown.revision < truth.revision and (shown.there or truth.there):
                return (
                    f"the view claims freshness {reader.fresh} but shows key {key} {said(shown)}; it was {said(truth)}"
                )
        return ""

    def unsettled(self, world: World) -> str:
        """Without faults the reader ends with the truth."""
        for _ in range(200):
            steps = {step.kind: step for step in reversed(list(self.steps(world, fair=True)))}
            kind = next((kind for kind in FAIR_ORDER if kind in steps), None)
            if kind is None:
                break
            world = steps[kind].state
            if self.violation(world):
                return f"{self.violation(world)} (in a fair continuation)"
        for key, shown in enumerate(world.reader.view):
            truth = world.history[key][-1]
            if shown.there != truth.there or (truth.there and shown != truth):
                return f"no progress: the view shows key {key} {said(shown)} for ever; it is {said(truth)}"
        return ""

    def steps(self, world: World, *, fair: bool = False) -> Iterator[Step]:
        """Everything that may happen next."""
        if not fair and world.revision <= len(self.changes):
            key, there = self.changes[world.revision - 1]
            label = f"key {key} becomes {said(Version(world.revision + 1, there))}"
            yield Step("change", label, self._change(world))
        for number, watcher in enumerate(world.watchers):
            yield from self._watcher(world, number, watcher, fair=fair)
        yield from self._reader(world)
        if not fair and world.counts.reset:
            counts = world.counts._replace(reset=world.counts.reset - 1)
            blank = Reader(0, 0, (NEVER,) * len(world.history), 0, 0, world.last)
            yield Step(
                "reset", "a new reader starts from the beginning of STATE", world._replace(reader=blank, counts=counts)
            )

    def _change(self, world: World) -> World:
        key, there = self.changes[world.revision - 1]
        versions = (*world.history[key], Version(world.revision + 1, there))
        return world._replace(history=put(world.history, key, versions), revision=world.revision + 1)

    # ---- watchers ------------------------------------------------------------------------------------------------

    def _watcher(self, world: World, number: int, watcher: Watcher, *, fair: bool) -> Iterator[Step]:
        me = f"w{number}"
        if watcher.queue:
            yield self._land(world, number, watcher)
        if not fair and world.counts.remove and self._may_remove(watcher):
            counts = world.counts._replace(remove=world.counts.remove - 1)
            after = without_old_epochs(world, watcher.epoch)._replace(counts=counts)
            yield Step("remove", f"{me} removes the epochs before {watcher.epoch}", after)
        alive = any(w.role not in {Role.OFF, Role.STOPPED} and w.epoch == world.epoch for w in world.watchers)
        if watcher.role in {Role.OFF, Role.STOPPED}:
            if not watcher.queue and ((fair and not alive) or (not fair and world.counts.start)):
                epoch = world.epoch + 1
                counts = world.counts if fair else world.counts._replace(start=world.counts.start - 1)
                after = world._replace(epoch=epoch, counts=counts)
                if "I-epoch-before-load" in self.on:
                    after = publish(after, Message(0, EPOCH, epoch), self.on)
                    label = f"{me} starts: publishes epoch {epoch} (sequence {after.last})"
                else:
                    label = f"{me} starts (epoch {epoch})"
                yield Step("start", label, with_watcher(after, number, Watcher(Role.LOADING, epoch)))
        elif watcher.refused:
            yield from self._refused(world, number, watcher)
        elif watcher.role == Role.LOADING:
            yield self._load(world, number, watcher)
        elif watcher.role == Role.LISTING:
            oldest = world.revision - world.counts.stale_list if not fair else world.revision
            for revision in range(max(oldest, 1), world.revision + 1):
                yield self._list(world, number, watcher, revision)
        elif watcher.role == Role.ANNOUNCING:
            after = publish(world, Message(0, EPOCH, watcher.epoch), self.on)
            announced = watcher._replace(role=Role.CURRENT, expected=after.last)
            label = f"{me} publishes its epoch {watcher.epoch} (sequence {after.last}) after it has listed"
            yield Step("announce", label, with_watcher(after, number, self._difference(after, announced, watcher.at)))
        elif watcher.tell and not watcher.queue:
            label = f"{me} has every answer and sends a clock ({watcher.tell})"
            told = pipeline(watcher, [clock_of(watcher)])._replace(tell=0)
            yield Step("watch", label, with_watcher(world, number, told))
        elif watcher.at < world.revision and len(watcher.queue) < 4:
            yield self._see(world, number, watcher)

    def _may_remove(self, watcher: Watcher) -> bool:
        """Everything that was stray is published over; without the rule, once the watcher is there."""
        if "I-epochs-removed-late" in self.on:
            return watcher.role == Role.CURRENT and not watcher.queue and not watcher.refused
        return watcher.role in {Role.LOADING, Role.LISTING, Role.CURRENT}

    def _land(self, world: World, number: int, watcher: Watcher) -> Step:
        message, rest = watcher.queue[0], watcher.queue[1:]
        if message.sequence == world.last + 1:
            after = publish(with_watcher(world, number, watcher._replace(queue=rest)), message, self.on)
            return Step("land", f"w{number}'s {told(message)} is stored (sequence {message.sequence})", after)
        refused = watcher._replace(queue=rest, refused=(*watcher.refused, message))
        label = f"w{number}'s {told(message)} is refused: it expected sequence {message.sequence}, not {world.last + 1}"
        return Step("land", label, with_watcher(world, number, refused))

    def _refused(self, world: World, number: int, watcher: Watcher) -> Iterator[Step]:
        """Every answer is in: reload and list again; without the rule, send again at the new sequence."""
        if watcher.queue:
            return
        if "I-reload-after-refusal" in self.on:
            after = watcher._replace(role=Role.LOADING, refused=(), shown=(), tell=0)
            yield Step("reload", f"w{number} reads the refusal and starts over", with_watcher(world, number, after))
            return
        again = tuple(m._replace(sequence=world.last + 1 + n) for n, m in enumerate(watcher.refused))
        after = watcher._replace(queue=again, refused=(), expected=world.last + len(again))
        yield Step("reload", f"w{number} sends again what was refused", with_watcher(world, number, after))

    def _load(self, world: World, number: int, watcher: Watcher) -> Step:
        shown = [NEVER] * len(world.history)
        highest = 0
        for message in world.state:
            stray = message.epoch < highest and "I-republish-overwritten" in self.on
            highest = max(highest, message.epoch)
            if message.kind == KEY:
                shown[message.key] = UNKNOWN if stray else message.version
        if highest > watcher.epoch:
            return Step(
                "load",
                f"w{number} loads STATE, sees a newer epoch and stops",
                with_watcher(world, number, Watcher(Role.STOPPED)),
            )
        loaded = watcher._replace(role=Role.LISTING, expected=world.last, shown=tuple(shown))
        return Step("load", f"w{number} loads STATE up to sequence {world.last}", with_watcher(world, number, loaded))

    def _list(self, world: World, number: int, watcher: Watcher, revision: int) -> Step:
        label = f"w{number} lists at revision {revision}"
        if revision < world.revision:
            world = world._replace(counts=world.counts._replace(stale_list=world.counts.stale_list - 1))
            label += f" (a stale list: {world.revision} is current)"
        if "I-epoch-before-load" in self.on:
            listed = self._difference(world, watcher._replace(role=Role.CURRENT), revision)
        else:
            listed = watcher._replace(role=Role.ANNOUNCING, at=revision)
        return Step("list", label, with_watcher(world, number, listed))

    def _difference(self, world: World, watcher: Watcher, revision: int) -> Watcher:
        """Queue what STATE lacks or shows wrongly, tombstones for what is gone, then a clock."""
        messages = []
        for key, shown in enumerate(watcher.shown):
            truth = version_at(world.history[key], revision)
            if truth.there and shown != truth:
                messages.append(Message(0, KEY, watcher.epoch, key, truth))
            elif not truth.there and (shown.there or shown == UNKNOWN):
                messages.append(Message(0, KEY, watcher.epoch, key, Version(revision, there=False)))
        return self._send(watcher._replace(at=revision, shown=()), messages)

    def _see(self, world: World, number: int, watcher: Watcher) -> Step:
        revision = watcher.at + 1
        changed = [(key, v) for key, versions in enumerate(world.history) for v in versions if v.revision == revision]
        messages = [Message(0, KEY, watcher.epoch, key, version) for key, version in changed]
        after = self._send(watcher._replace(at=revision), messages)
        return Step(
            "watch",
            f"w{number} sees revision {revision} and publishes it, pipelined",
            with_watcher(world, number, after),
        )

    def _send(self, watcher: Watcher, messages: list[Message]) -> Watcher:
        """Send the messages, and a clock: behind them in the same pipe only without rule I-clock-after-answers."""
        if "I-clock-after-answers" in self.on:
            return pipeline(watcher, messages)._replace(tell=watcher.at)
        return pipeline(watcher, [*messages, clock_of(watcher)])

    # ---- the reader ----------------------------------------------------------------------------------------------

    def _reader(self, world: World) -> Iterator[Step]:
        reader = world.reader
        message = next((m for m in world.state if m.sequence > reader.position), None)
        if message is None:
            return
        after = reader._replace(position=message.sequence, highest=max(reader.highest, message.epoch))
        label = f"the reader applies {told(message)} (sequence {message.sequence})"
        broken = ""
        if message.epoch < reader.highest and "I-reader-drops-epoch" in self.on:
            label = f"the reader drops {told(message)}: epoch {message.epoch} is below {reader.highest}"
            if "I-stray-voids-clock" in self.on:
                after = after._replace(claimed=0)
        elif message.kind == CLOCK:
            after = after._replace(claimed=message.version.revision)
        elif message.kind == KEY:
            known = reader.view[message.key]
            if message.version.revision < known.revision:
                if "I-reader-drops-older" in self.on:
                    label = f"the reader drops {told(message)}: it knows revision {known.revision}"
                else:
                    broken = f"a view goes back: key {message.key} from {said(known)} to {said(message.version)}"
            if message.version.revision >= known.revision or broken:
                after = after._replace(view=put(reader.view, message.key, message.version))
        if after.highest > reader.highest and "I-clock-of-the-epoch" in self.on and message.kind != CLOCK:
            after = after._replace(claimed=0)
        if message.sequence == world.last or "I-fresh-at-the-end" not in self.on:
            after = after._replace(fresh=max(after.fresh, after.claimed))
        yield Step("apply", label, world._replace(reader=after, broken=broken))
