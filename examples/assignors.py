"""Uses the assignors without a server: an assignment, the moves that a join causes, and a user-defined assignor.

python examples/assignors.py
"""

from collections.abc import Iterable

import numpy as np

from kcore.assignors import GroupAssignment, Member, Topics, arrays, get, load_all, measure


class EvenOdd:
    """A user-defined assignor: the first subscriber of a topic gets its even partitions, and the last subscriber its
    odd partitions.
    """

    name = "even-odd"

    def assign(
        self, members: Iterable[Member], topics: Topics, previous: GroupAssignment | None = None
    ) -> dict[str, dict[str | bytes, list[int]]]:
        """Returns member id -> topic -> partitions. A member that is missing in the result gets no partitions.

        Members subscribe by topic name. In a server's group, the keys of `topics` are topic ids, but look-ups by name
        work, too. The result may use ids or names.
        """
        readers: dict[str | bytes, list[str]] = {}
        for member in sorted(members, key=lambda member: member.member_id):
            for topic in member.topics:
                readers.setdefault(topic, []).append(member.member_id)
        assigned: dict[str, dict[str | bytes, list[int]]] = {}
        for topic, ids in readers.items():
            for partition in range(topics.get(topic, 0)):
                owner = ids[-1 if partition % 2 else 0]
                assigned.setdefault(owner, {}).setdefault(topic, []).append(partition)
        return assigned


def main() -> None:
    topics = Topics({"orders": 6, "payments": 4})
    members = [Member(f"consumer-{i}", ["orders", "payments"]) for i in range(3)]

    print("range:")
    for member_id, assigned in get("range").assign(members, topics).items():
        print("   ", member_id, dict(assigned))

    # A server-side assignor takes its previous result as `previous`, so that a join moves as few partitions as
    # possible.
    uniform = get("uniform", "consumer")
    before = uniform.assign(members, topics)
    after = uniform.assign([*members, Member("consumer-3", ["orders", "payments"])], topics, before)
    figures = measure(after, before)
    print(f"uniform: counts {figures.counts}, moved {figures.moved}, changed {after.changed_members(before)}")

    # Two phases of cooperative-sticky: a moving partition is withheld until its owner has revoked it (KIP-429).
    cooperative = get("cooperative-sticky")
    owned = [Member("a", ["orders"], owned={"orders": range(6)}, generation_id=1), Member("b", ["orders"])]
    first = cooperative.assign(owned, topics)
    second = cooperative.assign(owned, topics, first)
    print("cooperative-sticky:", len(first.withheld), "withheld, then", {m: a.size for m, a in second.items()})

    # Loads the assignor by the text of a setting, such as group.consumer.assignors.
    assignors = load_all("uniform,__main__:EvenOdd", "consumer")
    print("user-defined:", assignors["even-odd"].assign(members, topics).sizes())

    # A simulation: 10,000 members, 1,000,000 partitions, one more member joins.
    group, grown = arrays.Group(np.full(100, 10_000), 9_999), arrays.Group(np.full(100, 10_000), 10_000)
    owner = arrays.uniform_(group)
    print("arrays:", int((arrays.uniform_(grown, owner) != owner).sum()), "of", group.partitions, "partitions move")


if __name__ == "__main__":
    main()
