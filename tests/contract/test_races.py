"""Writers at the same time: exactly one wins where there is one thing to win, and nothing is lost where there is room for all."""

import asyncio
from collections import Counter

from tests.contract.api import Api

WRITERS = 12


async def test_of_many_creates_of_one_name_exactly_one_succeeds(api: Api):
    body = {"metadata": api.metadata(api.name("raced"))}
    answers = await asyncio.gather(*(api.post(api.core("configmaps"), body) for _ in range(WRITERS)))
    assert Counter(answer.status for answer in answers) == {201: 1, 409: WRITERS - 1}


async def test_of_many_bindings_of_one_pod_exactly_one_succeeds_and_its_annotations_stay(api: Api):
    pod = await api.create_pod("raced")
    name = pod["metadata"]["name"]
    answers = await asyncio.gather(
        *(api.bind(name, f"muster-contract-{number}", annotations={"cards": str(number)}) for number in range(WRITERS))
    )
    assert Counter(answer.status for answer in answers) == {201: 1, 409: WRITERS - 1}
    winner = next(number for number, answer in enumerate(answers) if answer.status == 201)
    bound = (await api.get(api.pod(name))).ok().body
    assert bound["spec"]["nodeName"] == f"muster-contract-{winner}"
    assert bound["metadata"]["annotations"] == {"cards": str(winner)}


async def test_of_many_replacements_of_one_version_exactly_one_succeeds(api: Api):
    made = await api.create_config_map("raced")
    path = api.core("configmaps", made["metadata"]["name"])
    answers = await asyncio.gather(*(api.put(path, {**made, "data": {"key": str(one)}}) for one in range(WRITERS)))
    assert Counter(answer.status for answer in answers) == {200: 1, 409: WRITERS - 1}


async def test_merge_patches_without_a_version_all_succeed_and_none_is_lost(api: Api):
    made = await api.create_config_map("merged")
    path = api.core("configmaps", made["metadata"]["name"])
    patches = ({"metadata": {"annotations": {f"writer-{number}": "was here"}}} for number in range(WRITERS))
    answers = await asyncio.gather(*(api.patch(path, patch) for patch in patches))
    assert {answer.status for answer in answers} == {200}
    annotations = (await api.get(path)).ok().body["metadata"]["annotations"]
    assert set(annotations) == {f"writer-{number}" for number in range(WRITERS)}


async def test_a_watch_sees_each_of_many_concurrent_creates_once_in_the_order_of_their_versions(api: Api):
    start = (await api.get(api.core("configmaps"))).ok().resource_version
    label = api.name("crowd")
    query = {"labelSelector": f"crowd={label}", "resourceVersion": start}
    async with api.watch(api.core("configmaps"), query) as watch:
        made = await asyncio.gather(
            *(api.create_config_map("crowd", labels={"crowd": label}) for _ in range(4 * WRITERS))
        )
        events = await watch.take(4 * WRITERS)
    assert [event.type for event in events] == ["ADDED"] * len(made)
    assert sorted(event.name for event in events) == sorted(one["metadata"]["name"] for one in made)
    versions = [event.resource_version for event in events]
    assert versions == sorted(set(versions))
