"""An embedded node for threads: create a topic, write, read and commit.

python examples/embed_sync.py [FOLDER]
"""

from __future__ import annotations

import sys

import kcore


def main() -> None:
    with kcore.open(sys.argv[1] if len(sys.argv) > 1 else None) as node:
        topic = node.topics.create("lines", partitions=1, exist_ok=True)
        topic.append("a line")
        group = node.group("workers")
        group.commit({("lines", 0): 42})
        for partition, committed in group.committed().items():
            print(f"{group.id} is at {committed.offset} of {partition}")


if __name__ == "__main__":
    main()
