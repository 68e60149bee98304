"""An embedded node on an event loop: one task reads, and waits until another task has appended records.

python examples/embed_async.py
"""

from __future__ import annotations

import asyncio

import kcore


async def main() -> None:
    async with kcore.open_async() as node:
        topic = await node.topics.create("lines", partitions=1)
        reading = asyncio.ensure_future(topic.read(0, 0, wait=10.0))
        await asyncio.sleep(0)
        await topic.append_many(["first", "second"])
        for record in await reading:
            print(f"offset {record.offset}: {(record.value or b'').decode()}")


if __name__ == "__main__":
    asyncio.run(main())
