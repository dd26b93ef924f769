"""The rules that can be left out, each with the sentence of the protocol that it stands for."""

COMMIT_RULES: dict[str, str] = {
    "A-epoch-stop": "whoever reads a newer leader entry stops for good",
    "A-expected-sequence-of-view": "an append expects the last sequence applied to the view that decided, never one fetched",
    "A-one-append-in-flight": "one append in flight",
    "A-read-after-unknown": "after an unknown result LEDGER is read before anything is decided or done",
    "A-one-open-entry": "at most one open entry per gang",
    "B-close-only-on-state": "a bind entry closes only when STATE shows every member bound; a 201 closes nothing",
    "B-freshness-hold": "a reader holds the slots of a closed entry until its own view has reached the freshness that the closing entry names",
    "C-touch-on-takeover": "a take-over touches every uid named in open entries before it decides",
    "C-touch-all-named": "whatever STATE shows",
    "C-touch-answer": "a touch counts when its answer shows the moved resourceVersion, not when it was sent",
    "C-rv-precondition": "every Binding and eviction carries the resourceVersion that was read with the fence",
    "C-first-attempt-fenced": "the first attempt included",
    "C-fence-monotone": "a touch moves the fence only upwards",
    "C-token-of-both": "an executor's token is the higher of its entry and its leader entry",
    "C-forged-is-evicted": "a fence above the token that nobody can have given keeps no pod from its eviction",
    "C-forged-proven": "nobody has when the LEDGER, read to its end after the pod, shows the entry open and no newer leader",
    "C-forged-waits": "no new entry names a pod whose fence is above the LEDGER",
    "D-undo-touch": "an undoing touches every member with its sequence first",
    "D-close-on-fence": "an undoing closes when STATE shows each member unbound with that fence",
    "D-gone-is-fresh": "an absent pod is gone only in a view that has reached the freshness at which its uid was named",
    "D-terminating-holds": "a terminating pod is still bound",
    "D-room-held-until-close": "room is held until the undoing closes",
    "D-release-new-undoing": "a broken gang whose entry was closed is released by a new undoing",
    "E-plan-holds-room": "from its commit a plan holds its room for the gang",
    "E-victim-one-plan": "a victim is in at most one open plan",
    "E-bind-consumes": "while a plan is open its gang is bound only by an entry that consumes it",
    "E-victims-gone-first": "once the victims are gone",
    "E-consume-free-room": "on the nominated room, or on other room that the view and LEDGER show free",
    "E-victim-one-entry": "a victim is in no other open entry: not planned for while it is, not released while the plan is open",
    "E-withdraw-touch": "a withdrawing touches the victims before it closes",
    "E-takeover-touches-victims": "a take-over touches the victims of open plans too",
    "F-uid-named": "no Binding for a uid that no open entry names",
    "F-new-uid-no-slot": "a new uid never inherits a slot",
    "F-vanished-node": "a bind to a node that has vanished counts as unbound",
    "H-incarnation-above": "a re-created store starts above every old sequence",
    "H-touch-all-unbound": "the first take-over of an incarnation touches all our unbound pods",
    "H-touch-bound-too": "and the bound ones, which an eviction of the lost store may still name",
    "H-touch-until-first-bind": "and so does every later take-over, until a bind of this incarnation shows that one was finished",
    "H-view-past-the-loss": "the pods to touch come from a view at or past the new leader entry",
    "H-view-past-the-touches": "and it decides in a view that shows their fences, for what a touch found bound no entry remembers",
}

NODE_RULES: dict[str, str] = {
    "G-removable-fresh": "removable is committed when the view shows the pods at or past the revision of the cordon",
    "G-no-unclosed-entry": "and no unclosed entry binds to the node",
    "G-version-on-nodes": "every node write carries the node's resourceVersion",
    "G-fence-on-nodes": "and is dropped if the node's fence is newer",
    "G-uncordon-shown": "after an uncordon nothing is committed to the node until STATE shows that write",
    "G-removal-grace": "and the removal grace has passed with the node still there",
}

WATCHER_RULES: dict[str, str] = {
    "I-epoch-before-load": "a new watcher publishes its epoch before it loads and lists",
    "I-reader-drops-epoch": "readers drop a message whose epoch is below the highest seen earlier in the stream",
    "I-reader-drops-older": "or which is older than the key's known resourceVersion",
    "I-reload-after-refusal": "a refused writer never resends: it reloads and relists",
    "I-republish-overwritten": "and publishes again what a stray message overwrote",
    "I-clock-after-answers": "a clock is sent when every earlier publish was accepted, never pipelined behind them",
    "I-clock-of-the-epoch": "a new epoch voids the clock of the old one",
    "I-stray-voids-clock": "a stray message voids the clocks before it: it may have overwritten what they vouch for",
    "I-fresh-at-the-end": "a clock counts once the reader has applied all that STATE held, for superseded messages are missing from the order",
    "I-epochs-kept": "every epoch message stays in STATE, or a later watcher cannot tell which messages are stray",
    "I-epochs-removed-late": "a watcher removes the epochs before its own only when everything that was stray as it loaded is published over",
}

RULES: dict[str, str] = {**COMMIT_RULES, **NODE_RULES, **WATCHER_RULES}

LIVENESS_RULES = frozenset({"C-token-of-both", "C-forged-is-evicted", "C-forged-waits", "E-victim-one-entry"})
"""Rules whose absence breaks no promise but stops all progress: found by settling every state fairly."""
