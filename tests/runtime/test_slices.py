"""Long tasks run in slices, and several tasks take turns."""

from collections.abc import Iterator
from itertools import chain

from kcore.runtime import Slices
from kcore.runtime.slices import until_settled


def test_works_take_turns_and_end() -> None:
    seen: list[str] = []

    def work(name: str, slices: int) -> Iterator[None]:
        for i in range(slices):
            seen.append(f"{name}{i}")
            yield

    slices = Slices()
    slices.add(work("a", 3))
    slices.add(work("b", 1))
    assert len(slices) == 2
    while slices.step():
        pass
    assert seen == ["a0", "b0", "a1", "a2"]
    assert not slices
    assert not slices.step()


def test_work_behind_a_change_waits_for_the_end_of_the_changes() -> None:
    seen: list[str] = []
    changes: list[int] = []

    def change() -> Iterator[None]:
        for number in range(3):
            changes.append(number)
            yield

    def follow() -> Iterator[None]:
        seen.append(f"after {len(changes)}")
        yield

    slices = Slices()
    slices.add(change())
    slices.step()
    slices.add(chain(until_settled(lambda: len(changes)), follow()))
    slices.finish()
    assert seen == ["after 3"]
    assert list(until_settled(lambda: 0)) == [None]
