import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.bus.state_publishing import Stored
from muster.model.policy import Policy
from muster.watcher.kinds import watched_kinds
from muster.watcher.mirror import Mirror

KIND = {kind.name: kind for kind in watched_kinds(Policy())}


def raw(kind, name, version=1, **values):
    document = {
        "metadata": {
            "name": name,
            "namespace": "ns" if KIND[kind].info.namespaced else "",
            "resourceVersion": str(version),
        },
        **values,
    }
    return msgspec.convert(document, KIND[kind].info.struct)


def stored(publication):
    raw = msgspec.json.encode(publication.object)
    return Stored(kind=publication.kind, raw=raw, resource_version="1", sequence=1)


def mirror():
    return Mirror(KIND.values())


def test_the_same_object_is_published_once():
    held = mirror()
    assert len(held.changed(KIND["pod"], raw("pod", "a"))) == 1
    assert held.changed(KIND["pod"], raw("pod", "a")) == ()


def test_a_heartbeat_of_a_node_is_no_change_and_a_cordon_is():
    held = mirror()
    held.changed(KIND["node"], raw("node", "a", 1))
    assert held.changed(KIND["node"], raw("node", "a", 2)) == ()
    assert len(held.changed(KIND["node"], raw("node", "a", 3, spec={"unschedulable": True}))) == 1


def test_a_list_gives_tombstones_for_what_is_gone_of_its_own_kind_only():
    held = mirror()
    for kind, name in (("vcjob", "a"), ("vcjob", "b"), ("job", "a"), ("pod", "a")):
        held.changed(KIND[kind], raw(kind, name))
    (gone,) = held.listed(KIND["vcjob"], [raw("vcjob", "a")], "9")
    assert (gone.kind, gone.key, gone.object, gone.resource_version) == ("workload", "vcjob/ns/b", None, "9")
    assert held.listed(KIND["job"], [raw("job", "a")], "9") == ()


def test_what_state_holds_already_is_not_published_again():
    first, second = mirror(), mirror()
    (publication,) = first.changed(KIND["pod"], raw("pod", "a"))
    second.loaded({("pod", "ns/a"): stored(publication)})
    assert second.changed(KIND["pod"], raw("pod", "a")) == ()
    (gone,) = second.listed(KIND["pod"], [], "5")
    assert gone.object is None


def test_what_a_stray_overwrote_is_published_again_whatever_it_is():
    held = mirror()
    (before,) = mirror().changed(KIND["pod"], raw("pod", "there"))
    unknown = Stored(kind="pod", raw=b"", resource_version="", sequence=2)
    held.loaded({("pod", "ns/there"): unknown, ("pod", "ns/gone"): unknown, ("pod", "ns/known"): stored(before)})
    assert held.unknown
    publications = held.listed(KIND["pod"], [raw("pod", "there")], "9")
    told = {item.key: item.object for item in publications}
    assert told["ns/there"] == before.object
    assert (told["ns/gone"], told["ns/known"]) == (None, None)
    assert not held.unknown


def test_an_object_that_was_too_large_is_published_once_it_is_smaller_and_its_end_is_told():
    held = mirror()
    held.changed(KIND["pod"], raw("pod", "a"))
    held.forget("pod", "ns/a")
    assert held.unknown
    assert len(held.changed(KIND["pod"], raw("pod", "a"))) == 1
    held.forget("pod", "ns/a")
    (gone,) = held.deleted(KIND["pod"], "ns/a", "4")
    assert gone.object is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=12), st.sets(st.sampled_from("abc")))
def test_whoever_applies_the_publications_holds_what_was_listed_last(changes, listed):
    held, state = mirror(), {}

    def apply(publications):
        for item in publications:
            if item.object is None:
                del state[item.key]
            else:
                state[item.key] = item.object

    for name, version in changes:
        apply(held.changed(KIND["pod"], raw("pod", name, version)))
    apply(held.listed(KIND["pod"], [raw("pod", name, 9) for name in sorted(listed)], "9"))
    assert set(state) == {f"ns/{name}" for name in listed}
    assert len(held) == len(listed)


def test_one_odd_object_does_not_hide_the_others():
    held = mirror()
    odd = raw("pod", "odd", spec={"containers": [{"resources": {"limits": {"cpu": "much"}}}]})
    publications = held.listed(KIND["pod"], [odd, raw("pod", "good")], "9")
    assert [item.key for item in publications] == ["ns/good"]
    assert [(skipped.key, "much" in skipped.error) for skipped in held.skipped] == [("ns/odd", True)]


def test_an_object_that_turns_odd_stays_as_it_was():
    held = mirror()
    held.changed(KIND["pod"], raw("pod", "a"))
    odd = raw("pod", "a", 2, spec={"containers": [{"resources": {"limits": {"cpu": "much"}}}]})
    assert held.listed(KIND["pod"], [odd], "9") == ()
