"""A consumer of a reflector that takes every change at its word."""

import asyncio

from muster.kube.reflector import Changed, Deleted, Fresh, Listed


class Consumer:
    """Applies changes literally, and objects to any that does not fit what it was told before."""

    def __init__(self):
        self.objects = {}
        self.listed = 0
        self.fresh = 0

    async def deliver(self, change):
        if isinstance(change, Listed):
            self.listed += 1
            assert self.listed == 1, "a second full list instead of differences"
            self.objects = {item.metadata.key: item for item in change.items}
        elif isinstance(change, Changed):
            metadata = change.object.metadata
            before = self.objects.get(metadata.key)
            assert (before is None) == (change.old_resource_version is None)
            if before is not None:
                assert before.metadata.uid == metadata.uid, "a new uid without a delete before it"
                assert change.old_resource_version == before.metadata.resource_version
                assert metadata.resource_version != before.metadata.resource_version, "nothing changed"
            self.objects[metadata.key] = change.object
        elif isinstance(change, Deleted):
            assert self.objects.pop(change.key).metadata.uid == change.uid
        elif isinstance(change, Fresh):
            version = int(change.resource_version)
            assert version >= self.fresh, "freshness went back"
            self.fresh = version
        await asyncio.sleep(0)
