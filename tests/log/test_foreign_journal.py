"""A journal file that does not belong to the data file beside it, for example from a backup of another time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kcore.log import DataFolderError, LmdbLogEngine, journal, verify_folder
from kcore.log.journal_file import ENTRY_HEAD, JOURNAL_BYTES, entry_at, read_file
from kcore.log.lmdb_copy import copy_folder
from tests.log.batches import batch, contents, key, stamped

ROUNDS = 4
FOREIGN = "the file `journal` belongs to another folder, or to an older or newer copy of this folder"
State = Callable[[str], Path]


def append_rounds(engine: LmdbLogEngine, count: int) -> list[bytes]:
    """Commits rounds with one batch each. Returns the batches."""
    log = engine.open(key(1))
    stored = []
    for turn in range(count):
        data = batch(1, fill=turn)
        stored.append(stamped(data, log.append(data, 0), 0))
        engine.commit()
    return stored


@pytest.fixture(autouse=True)
def small_areas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the journal to a few rounds, after which it is full."""
    monkeypatch.setattr(journal, "MAX_ENTRIES", ROUNDS)


@pytest.fixture
def state(folder: Path, tmp_path: Path) -> State:
    """Copies the open folder in the state that a killed process would leave."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    return copy


def require_refused(folder: Path, why: str) -> None:
    """Checks that every command refuses the folder and leaves it unchanged."""
    before = {file.name: file.read_bytes() for file in (folder / "data.mdb", folder / "journal")}
    with pytest.raises(DataFolderError, match=why):
        LmdbLogEngine(folder)
    with pytest.raises(DataFolderError, match=why):
        verify_folder(folder)
    with pytest.raises(DataFolderError, match=why):
        copy_folder(str(folder), str(folder.with_name("copy")))
    assert {name: (folder / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("other", ["an earlier journal", "a later journal", "another folder", "zeros"])
def test_a_journal_of_another_state_is_refused_and_not_changed(
    other: str, folder: Path, tmp_path: Path, state: State
) -> None:
    """The folder's journal file is replaced by zeros, by an earlier or later state of the file, or by that of another
    folder. Every command refuses the folder. Once the right file is back, the folder opens with all rounds.
    """
    engine = LmdbLogEngine(folder)
    append_rounds(engine, 3)
    earlier = state("earlier")
    append_rounds(engine, 2 * ROUNDS)  # the data file is newer by two journals
    crashed = state("crashed")
    stored = contents(engine.open(key(1)))
    append_rounds(engine, 2 * ROUNDS)
    later = state("later")
    engine.close()
    with closing(LmdbLogEngine(tmp_path / "other")) as second:
        append_rounds(second, 3)
        foreign = Path(shutil.copytree(tmp_path / "other", tmp_path / "foreign"))
    right = read_file(str(crashed))
    files = {"an earlier journal": earlier, "a later journal": later, "another folder": foreign}
    wrong = read_file(str(files[other])) if other in files else bytes(JOURNAL_BYTES)
    (crashed / "journal").write_bytes(wrong)
    require_refused(crashed, FOREIGN)
    (crashed / "journal").write_bytes(right)
    again = LmdbLogEngine(crashed)
    assert contents(again.open(key(1))) == stored
    again.close()


def test_a_journal_of_another_folder_is_refused_before_the_first_move(folder: Path, tmp_path: Path) -> None:
    """Two new folders have their first journals. After one journal file is replaced by the other, the folder does not
    open.

    The data file of a new folder has zeros in place of a reference to its first journal.
    """
    with closing(LmdbLogEngine(folder)) as engine, closing(LmdbLogEngine(tmp_path / "other")) as second:
        stored = append_rounds(engine, 3)
        append_rounds(second, 3)
        crashed = Path(shutil.copytree(folder, tmp_path / "crashed"))
        right = read_file(str(crashed))
        shutil.copy(tmp_path / "other" / "journal", crashed / "journal")
    require_refused(crashed, FOREIGN)
    (crashed / "journal").write_bytes(right)
    with closing(LmdbLogEngine(crashed)) as again:
        assert contents(again.open(key(1))) == stored


def test_an_empty_file_in_place_of_the_first_journal_is_refused_after_a_move(folder: Path, state: State) -> None:
    """The data file of a new folder refers to no earlier journal, but it shows that entries were moved to the log."""
    moves: list[Callable[[], None]] = []
    with closing(LmdbLogEngine(folder)) as engine:
        engine.move_beside(lambda move: bool(moves.append(move)) or True)
        append_rounds(engine, ROUNDS + 2)
        for move in moves:
            move()
        append_rounds(engine, 1)
        crashed = state("crashed")
        stored = contents(engine.open(key(1)))
    right = read_file(str(crashed))
    (crashed / "journal").write_bytes(bytes(JOURNAL_BYTES))
    require_refused(crashed, FOREIGN)
    (crashed / "journal").write_bytes(right)
    with closing(LmdbLogEngine(crashed)) as again:
        assert contents(again.open(key(1))) == stored


@pytest.mark.parametrize("first_entry", ["missing", "torn"])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_crash_before_the_first_entry_of_a_journal_is_no_damage(
    first_entry: str, durability: str, folder: Path, state: State
) -> None:
    """A process crashes before it has written the first entry of a new journal. The file still begins with an entry of
    the earlier journal, whose batches are already in the log. The folder opens with all batches.
    """
    engine = LmdbLogEngine(folder, durability)
    stored = append_rounds(engine, ROUNDS + 2)  # the last round was written with the move of the journal
    crashed = state("crashed")
    append_rounds(engine, 1)
    if first_entry == "torn":
        written, found = bytearray(read_file(str(crashed))), entry_at(read_file(str(folder)), 0)
        assert found is not None
        end = ENTRY_HEAD.size + found[0].size // 2
        written[:end] = read_file(str(folder))[:end]
        (crashed / "journal").write_bytes(written)
    engine.close()
    with closing(LmdbLogEngine(crashed, durability)) as again:
        assert contents(again.open(key(1))) == stored


def test_a_file_whose_start_may_not_be_on_the_device_is_not_compared(folder: Path, state: State) -> None:
    """With durability `os`, the folder opens even if its journal file is replaced by an earlier copy.

    Without flushes, a power failure may lose the start of the journal file, but not LMDB's reference to it. Such a loss
    looks like an earlier copy.
    """
    engine = LmdbLogEngine(folder, "os")
    earlier = state("earlier")
    stored = append_rounds(engine, ROUNDS + 2)
    crashed = state("crashed")
    engine.close()
    shutil.copy(earlier / "journal", crashed / "journal")
    with closing(LmdbLogEngine(crashed, "os")) as again:
        assert contents(again.open(key(1))) == stored
