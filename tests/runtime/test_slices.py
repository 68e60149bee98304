"""Long work runs in turns."""

from collections.abc import Iterator

from kcore.runtime import Slices


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
