"""What the writer sends, against a scripted server; what the answers mean is in test_writer_semantics."""

import pytest

from muster.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, UnexpectedReply
from muster.kube.writer import Fenced, Writer, fence_of
from tests.kube.scripted_server import listing, pod, replies, status_reply

POD = pod("a", 12)


@pytest.fixture
def writer(kube):
    return Writer(kube, component="muster-test")


async def test_a_binding_carries_its_preconditions_and_annotations(server, writer):
    server.script = [replies({"kind": "Status", "status": "Success"}, status=201)]
    await writer.bind("team", "a", uid="u", resource_version="12", node="n1", annotations={"muster.dev/cards": "0,1"})
    sent = server.seen[0]
    assert (sent.method, sent.path) == ("POST", "/api/v1/namespaces/team/pods/a/binding")
    assert sent.headers["Content-Type"] == "application/json"
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "a",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "12",
            "annotations": {"muster.dev/cards": "0,1"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_an_eviction_carries_its_preconditions_and_grace(server, writer):
    server.script = [replies({}, status=201), replies({}, status=201)]
    await writer.evict("team", "a", uid="u", resource_version="12", grace=0)
    await writer.evict("team", "a", uid="u")
    full, short = (seen.body["deleteOptions"] for seen in server.seen)
    assert server.seen[0].path == "/api/v1/namespaces/team/pods/a/eviction"
    assert server.seen[0].body["apiVersion"] == "policy/v1"
    assert full["preconditions"] == {"uid": "u", "resourceVersion": "12"}
    assert full["gracePeriodSeconds"] == 0
    assert short["preconditions"] == {"uid": "u"}
    assert "gracePeriodSeconds" not in short


async def test_a_delete_carries_only_the_options_that_are_given(server, writer):
    server.script = [replies({}), replies({})]
    await writer.delete("jobs.batch", "team", "j", uid="u", grace_period=0, propagation="Foreground")
    await writer.delete("nodes", None, "n")
    assert (server.seen[0].method, server.seen[0].path) == ("DELETE", "/apis/batch/v1/namespaces/team/jobs/j")
    assert server.seen[0].body["propagationPolicy"] == "Foreground"
    assert server.seen[0].body["gracePeriodSeconds"] == 0
    assert server.seen[1].body == {"apiVersion": "v1", "kind": "DeleteOptions"}


@pytest.mark.parametrize(
    ("method", "body", "content_type"),
    [
        ("merge_patch", {"metadata": {"labels": {"a": None}}}, "application/merge-patch+json"),
        ("strategic_patch", {"spec": {}}, "application/strategic-merge-patch+json"),
        ("json_patch", [{"op": "test", "path": "/a", "value": 1}], "application/json-patch+json"),
    ],
)
async def test_patches_name_their_content_type(server, writer, method, body, content_type):
    server.script = [replies(POD)]
    patched = await getattr(writer, method)("pods", "team", "a", body, subresource="status")
    assert patched.metadata.resource_version == "12"
    sent = server.seen[0]
    assert (sent.method, sent.path) == ("PATCH", "/api/v1/namespaces/team/pods/a/status")
    assert sent.headers["Content-Type"] == content_type
    assert sent.body == body


async def test_a_status_patch_goes_to_the_status_subresource(server, writer):
    server.script = [replies(POD)]
    await writer.patch_status("podgroups.scheduling.volcano.sh", "team", "g", {"phase": "Running"})
    assert server.seen[0].path.endswith("/podgroups/g/status")
    assert server.seen[0].body == {"status": {"phase": "Running"}}


async def test_a_strategic_patch_of_a_custom_kind_is_refused_before_it_is_sent(server, writer):
    with pytest.raises(Invalid, match="merge_patch"):
        await writer.strategic_patch("queues.scheduling.volcano.sh", None, "q", {})
    assert server.seen == []


async def test_created_objects_get_their_kind_and_the_answer_is_typed(server, writer):
    server.script = [replies(POD, status=201)]
    created = await writer.create("pods", "team", {"metadata": {"generateName": "a-"}})
    assert created.metadata.key == "team/a"
    assert server.seen[0].body == {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}}


async def test_an_impersonating_writer_says_for_whom_it_acts(server, writer):
    server.script = [replies(POD, status=201), replies(POD)]
    await writer.impersonating("tenant:blue").create("pods", "team", {"metadata": {"name": "a"}})
    await writer.get("pods", "team", "a")
    assert server.seen[0].headers["Impersonate-User"] == "tenant:blue"
    assert "Impersonate-User" not in server.seen[1].headers


async def test_documents_are_read_whole_and_replaced_whole(server, writer):
    document = {**POD, "spec": {"containers": [{"env": [{"name": "A"}]}]}}
    server.script = [replies(document), replies(POD)]
    read = await writer.get_document("pods", "team", "a")
    assert read == document
    await writer.replace("pods", "team", "a", read)
    assert (server.seen[1].method, server.seen[1].body["spec"]) == ("PUT", document["spec"])


async def test_lists_are_typed_and_a_bad_object_is_not_passed_over(server, writer):
    server.script = [listing(5, pod("a", 1), token="t"), listing(5, pod("b", 2)), listing(6, pod("c", 1, spec=7))]
    assert [item.metadata.name for item in await writer.list("pods", "team", label_selector="x=y")] == ["a", "b"]
    with pytest.raises(UnexpectedReply, match="team/c"):
        await writer.list("pods")


async def test_errors_arrive_by_type(server, writer):
    server.script = [
        status_reply(409, "AlreadyExists", "exists"),
        status_reply(409, "Conflict", 'pod a is already assigned to node "n2"'),
    ]
    with pytest.raises(AlreadyExists):
        await writer.create("pods", "team", {})
    with pytest.raises(Conflict) as caught:
        await writer.bind("team", "a", uid="u", resource_version="1", node="n1")
    assert caught.value.assigned_node == "n2"


def fenced(version, fence=None, *, node="", uid="u"):
    annotations = {} if fence is None else {"muster.dev/fence": str(fence)}
    return pod("a", version, uid=uid, metadata={"annotations": annotations}, spec={"nodeName": node})


async def test_a_touch_raises_the_fence_with_the_version_it_read_and_tells_the_node(server, writer):
    server.script = [replies(fenced(12, 5, node="n3")), replies(fenced(13, 9, node="n3"))]
    touched = await writer.touch("pods", "team", "a", uid="u", fence=9)
    assert (touched.resource_version, touched.fence, touched.object.spec.node_name) == ("13", 9, "n3")
    assert server.seen[1].body == {
        "metadata": {"uid": "u", "resourceVersion": "12", "annotations": {"muster.dev/fence": "9"}}
    }


async def test_a_touch_never_lowers_a_fence(server, writer):
    server.script = [replies(fenced(12, 10))]
    with pytest.raises(Fenced) as caught:
        await writer.touch("pods", "team", "a", uid="u", fence=9)
    assert caught.value.found == 10
    assert len(server.seen) == 1


async def test_a_touch_that_met_another_writer_reads_again(server, writer):
    server.script = [
        replies(fenced(12)),
        status_reply(409, "Conflict", "the object has been modified"),
        replies(fenced(14, 3)),
        replies(fenced(15, 9)),
    ]
    assert (await writer.touch("pods", "team", "a", uid="u", fence=9)).resource_version == "15"


async def test_a_touch_that_met_a_newer_leader_stops(server, writer):
    server.script = [
        replies(fenced(12)),
        status_reply(409, "Conflict", "the object has been modified"),
        replies(fenced(14, 11)),
    ]
    with pytest.raises(Fenced):
        await writer.touch("pods", "team", "a", uid="u", fence=9)


async def test_a_touch_whose_earlier_attempt_arrived_is_not_written_again(server, writer):
    server.script = [replies(fenced(13, 9))]
    assert (await writer.touch("pods", "team", "a", uid="u", fence=9)).resource_version == "13"
    assert [seen.method for seen in server.seen] == ["GET"]


async def test_a_touch_brings_its_annotations_with_the_fence(server, writer):
    server.script = [replies(fenced(12, 5)), replies(fenced(13, 9))]
    await writer.touch("pods", "team", "a", uid="u", fence=9, annotations={"muster.dev/evict-at": "soon"})
    assert server.seen[1].body["metadata"]["annotations"] == {"muster.dev/evict-at": "soon", "muster.dev/fence": "9"}


async def test_a_pod_that_another_touched_with_our_fence_gets_the_annotations_that_are_missing(server, writer):
    server.script = [replies(fenced(13, 9)), replies(fenced(14, 9))]
    touched = await writer.touch("pods", "team", "a", uid="u", fence=9, annotations={"muster.dev/evict-at": "soon"})
    assert (touched.resource_version, [seen.method for seen in server.seen]) == ("14", ["GET", "PATCH"])


async def test_a_touch_of_another_uid_finds_nothing(server, writer):
    server.script = [replies(fenced(12, uid="second"))]
    with pytest.raises(NotFound, match="second"):
        await writer.touch("pods", "team", "a", uid="u", fence=9)


async def test_a_touch_with_a_known_object_saves_the_first_read(server, writer):
    server.script = [replies(fenced(12)), replies(fenced(13, 9))]
    known = await writer.get("pods", "team", "a")
    await writer.touch("pods", "team", "a", uid="u", fence=9, known=known)
    assert [seen.method for seen in server.seen] == ["GET", "PATCH"]


async def test_a_known_object_with_our_fence_is_read_again_before_it_is_believed(server, writer):
    server.script = [replies(fenced(13, 9)), replies(fenced(14, 10))]
    known = await writer.get("pods", "team", "a")
    with pytest.raises(Fenced):
        await writer.touch("pods", "team", "a", uid="u", fence=9, known=known)


async def test_a_touch_whose_answer_shows_no_newer_version_is_not_believed(server, writer):
    server.script = [replies(fenced(12)), replies(fenced(12, 9))]
    with pytest.raises(UnexpectedReply, match="expected a newer version"):
        await writer.touch("pods", "team", "a", uid="u", fence=9)


async def test_a_touch_gives_up_on_an_object_that_never_rests(server, writer):
    server.script = [replies(fenced(12)), status_reply(409, "Conflict", "the object has been modified")] * 20
    with pytest.raises(Conflict, match="changed 8 times"):
        await writer.touch("pods", "team", "a", uid="u", fence=9)


@pytest.mark.parametrize(
    ("written", "fence"), [("7", 7), ("", 0), ("-3", 0), ("x", 0), ("٣", 0), (str(3 * 2**40 + 5), 3 * 2**40 + 5)]
)
def test_a_fence_that_is_no_number_counts_as_none(written, fence):
    assert fence_of({"muster.dev/fence": written}) == fence


def test_an_object_without_annotations_has_no_fence():
    assert fence_of({}) == 0
