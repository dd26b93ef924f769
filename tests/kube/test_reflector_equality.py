"""For any interleaving of server changes, cut watches, expiries and errors, the consumer ends with the server's objects."""

import asyncio
import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.kube.decoding import KindInfo, RawObject
from muster.kube.errors import NotFound, TooManyRequests, Unavailable
from muster.kube.reflector import Reflector, ReflectorLimits
from tests.kube.consumer import Consumer
from tests.kube.memory_api import MemoryApi
from tests.kube.timings import InstantTiming, settle

WIDGETS = KindInfo(
    name="widgets.example.com",
    group="example.com",
    version="v1",
    plural="widgets",
    kind="Widget",
    namespaced=True,
    struct=RawObject,
)


def apply(api: MemoryApi, operation: str, key: str) -> None:
    if operation == "write":
        if key in api.objects:
            api.update(key, spec={"version": api.version})
        else:
            api.create(key, spec={})
    elif operation in {"delete", "recreate"} and key in api.objects:
        api.delete(key)
        if operation == "recreate":
            api.create(key, spec={})
    elif operation == "bookmark":
        api.bookmark()
    elif operation in {"end", "torn"}:
        api.cut(operation)
    elif operation == "reset":
        api.cut(Unavailable("reset", cause="reset", unknown_outcome=True))
    elif operation == "expire":
        api.expire_over_http = False
        api.compact()
    elif operation == "expire over http":
        api.expire_over_http = True
        api.compact()
    elif operation == "expire pages":
        api.expire_pages = min(2, api.expire_pages + 1)
        api.compact()
    elif operation == "fail":
        api.failures += [
            Unavailable("500", cause="status", unknown_outcome=True, status=500),
            TooManyRequests("429", retry_after=3.0),
            None,
            NotFound("404", kind_missing=True),
        ]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write",
                "write",
                "delete",
                "recreate",
                "bookmark",
                "end",
                "torn",
                "reset",
                "expire",
                "expire over http",
                "expire pages",
                "fail",
                "settle",
                "yield",
            ]
        ),
        st.sampled_from(["a/1", "a/2", "b/1", "b/2", "c/3"]),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(OPERATIONS, st.integers(1, 3), st.sampled_from([7, 64, 10_000]))
@example([("write", "a/1"), ("settle", ""), ("recreate", "a/1"), ("expire", "")], 1, 7)
@example([("write", "a/1"), ("settle", ""), ("delete", "a/1"), ("expire over http", "")], 1, 7)
@example([("write", "a/1"), ("write", "a/2"), ("settle", ""), ("expire pages", ""), ("expire pages", "")], 1, 7)
def test_the_consumer_ends_with_exactly_the_objects_of_the_server(operations, page_size, chunk_size):
    async def play():
        api = MemoryApi()
        api.chunk_size = chunk_size
        api.create("a/1", spec={})
        consumer = Consumer()
        timing = InstantTiming()
        reflector = Reflector(
            api, WIDGETS, consumer.deliver, limits=ReflectorLimits(page_size=page_size), timing=timing
        )
        running = asyncio.create_task(reflector.run())
        for operation, key in operations:
            if operation == "settle":
                await settle()
            elif operation == "yield":
                await asyncio.sleep(0)
            else:
                apply(api, operation, key)
        api.failures.clear()
        api.bookmark()
        for _ in range(1000):
            await asyncio.sleep(0)
            if running.done() or (api.open_streams and consumer.fresh == api.version):
                break
        else:
            raise AssertionError(f"not in step after all failures ended: {consumer.fresh} of {api.version}")
        if running.done():
            await running
        identities = {
            key: (item.metadata.uid, item.metadata.resource_version) for key, item in consumer.objects.items()
        }
        assert identities == {
            key: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for key, obj in api.objects.items()
        }
        assert {key: (known.uid, known.resource_version) for key, known in reflector.known.items()} == identities
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(play())
