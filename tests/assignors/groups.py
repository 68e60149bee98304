"""Random groups for the property tests."""

from hypothesis import strategies as st

from kcore.assignors import Member, Topics

RACKS = ("r0", "r1", "r2")


@st.composite
def groups(
    draw: st.DrawFn, *, equal: bool | None = None, racks: bool = True, owned: bool = True, static: bool = True
) -> tuple[list[Member], Topics]:
    """Draws up to twelve members and forty partitions.

    The owned partitions that members claim may conflict, be out of date, or not exist.
    """
    names = [f"t{i}" for i in range(draw(st.integers(1, 5)))]
    counts = {name: draw(st.integers(0, 8)) for name in names}
    with_racks = racks and draw(st.booleans())
    known = Topics(
        counts,
        racks={n: [draw(st.sets(st.sampled_from(RACKS))) for _ in range(counts[n])] for n in names}
        if with_racks
        else None,
    )
    same = draw(st.booleans()) if equal is None else equal
    everyone = draw(st.lists(st.sampled_from([*names, "gone"]), unique=True))
    free = [(name, p) for name in names for p in range(counts[name] + 1)]
    members = []
    for i in draw(st.permutations(range(draw(st.integers(1, 12))))):
        claims: dict[str, set[int]] = {}
        if owned:
            for name, p in draw(st.lists(st.sampled_from(free), max_size=6)) if free else ():
                claims.setdefault(name, set()).add(p)
        topics = everyone if same else draw(st.lists(st.sampled_from([*names, "gone"]), unique=True))
        members.append(
            Member(
                f"m{i:02}",
                topics,
                owned=claims,
                generation_id=draw(st.sampled_from([-1, 3, 4])) if claims else -1,
                rack_id=draw(st.sampled_from([None, *RACKS])) if with_racks else None,
                instance_id=f"i{i % 7}-{i}" if static and draw(st.booleans()) else None,
            )
        )
    return members, known


def settled(members: list[Member], known: Topics) -> list[Member]:
    """Returns the members with claims that cannot conflict: for each partition, exactly one subscriber claims it."""
    taken: set[tuple[str, int]] = set()
    result = []
    for member in sorted(members, key=lambda m: m.member_id):
        mine: dict[str, list[int]] = {}
        for topic, numbers in member.owned.items():
            for number in numbers:
                if topic in member.topics and number < known[topic] and (str(topic), number) not in taken:
                    taken.add((str(topic), number))
                    mine.setdefault(str(topic), []).append(number)
        result.append(
            Member(
                member.member_id,
                [str(t) for t in member.topics],
                owned=mine,
                generation_id=1,
                rack_id=member.rack_id,
                instance_id=member.instance_id,
            )
        )
    return result
