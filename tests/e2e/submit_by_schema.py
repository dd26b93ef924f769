import asyncio
import json
import sys

import jsonschema_rs
import nats


async def main(url: str, schema: str, job: dict) -> None:  # noqa: RET503
    jsonschema_rs.validate(json.loads(schema), job)
    jetstream = (connection := await nats.connect(url)).jetstream()
    steps = await jetstream.subscribe(f"muster.status.default.{job['id']}", ordered_consumer=True)
    await jetstream.publish("muster.jobs.submit.default", json.dumps(job).encode())
    async for step in steps.messages:
        print(step.data.decode())
        if json.loads(step.data)["state"] == "Succeeded":
            return await connection.close()


asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
