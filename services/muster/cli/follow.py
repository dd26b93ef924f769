"""Status events as lines, until a submission ends."""

import json
import sys
import time

import msgspec

from muster.bus.messages import StatusEvent
from muster.cli.words import ordinal
from muster.client import Job


def line(event: StatusEvent) -> str:
    """One event for people."""
    at = time.strftime("%H:%M:%S", time.localtime(event.at))
    position = f" ({ordinal(event.position)} in its queue)" if event.position else ""
    return f"{at}  {event.state:<10} {event.job or event.id}  {event.message or event.reason}{position}".rstrip()


async def print_events(job: Job, *, as_json: bool) -> int:
    """Print every event; 0 when the job succeeded, 1 when it failed, was refused or cancelled."""
    last: StatusEvent | None = None
    async for event in job.follow():
        last = event
        print(json.dumps(msgspec.to_builtins(event)) if as_json else line(event))
        sys.stdout.flush()
        for error in event.details.get("errors") or []:
            print(f"  {error.get('field', '')}: {error.get('message', '')}", file=sys.stderr)
    return 0 if last is not None and last.state == "Succeeded" else 1
