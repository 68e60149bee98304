"""`kcore log repair` of a folder with a journal: a sound, a damaged, a missing or a foreign one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcore.log import DataFolderError, LmdbLogEngine, PartitionKey
from kcore.log.lmdb_layout import JOURNAL_KEY, OLD_JOURNAL_DB, U32, U64
from tests.cli.conftest import folder_to_repair
from tests.cli.test_log_repair import OFFSETS, SETTINGS, VALUES, Run, append_ten, edit, repair, served
from tests.cli.test_log_verify import change, raw, records, topic_id
from tests.log.journals import AREA_BYTES, IDENTITY, JOURNAL_BYTES, encoded, entry, leave_journal
from tests.log.raw_rows import make_older, put_row

BEFORE = bytes(range(100, 116))
FOREIGN = bytes(range(16, 32))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with folder_to_repair(tmp_path / "data", SETTINGS) as path:
        yield path


def appended(folder: Path, count: int) -> list[tuple[int, int, bytes]]:
    """Returns new batches for the end of `lines-0`, each as (partition number in LMDB, base offset, bytes)."""
    engine = LmdbLogEngine(folder)
    log = engine.get(PartitionKey(topic_id(engine, "lines"), 0))
    assert log is not None
    number = log._number  # type: ignore[attr-defined]
    engine.close()
    found = []
    for base in range(3, 3 + count):
        data = bytearray(records((b"k", b"v%d" % base)))
        data[:8] = U64.pack(base)
        data[12:16] = U32.pack(log.leader_epoch)
        found.append((number, base, bytes(data)))
    return found


END_LOST = (None, "end", "the newest batches of any partition may be lost; new records will get their offsets")


def test_a_sound_folder_with_a_journal_is_left_alone(run: Run, folder: Path) -> None:
    leave_journal(folder, *(encoded([one]) for one in appended(folder, 3)))
    before = [(folder / name).read_bytes() for name in ("data.mdb", "journal")]
    ran = run("log", "repair", folder, "--yes")
    assert (ran.status, ran.out) == (0, "the folder needs no repair\n")
    assert [(folder / name).read_bytes() for name in ("data.mdb", "journal")] == before
    assert served(folder) == ([*VALUES, *((base, (b"v%d" % base).hex()) for base in (3, 4, 5))], OFFSETS)


def test_the_journal_is_part_of_a_repaired_folder(run: Run, folder: Path) -> None:
    number = change(folder, "lines", append_ten)
    raw(folder, number, 6, None)
    engine = LmdbLogEngine(folder)
    log = engine.get(PartitionKey(topic_id(engine, "lines"), 0))
    assert log is not None
    epoch = log.leader_epoch
    engine.close()
    data = bytearray(records((b"k", b"new")))
    data[:8], data[12:16] = U64.pack(13), U32.pack(epoch)
    leave_journal(folder, encoded([(number, 13, bytes(data))]))
    (loss,) = repair(run, folder)
    assert (loss["from_offset"], loss["loss"]) == (6, "gap")
    assert served(folder)[0][-1] == (13, b"new".hex())


def test_sound_rounds_around_a_damaged_one_are_recovered(run: Run, folder: Path) -> None:
    rounds = [encoded([one]) for one in appended(folder, 4)]
    leave_journal(folder, *rounds)
    data = bytearray((folder / "journal").read_bytes())
    at = 32 + len(rounds[0]) + 40
    data[at] ^= 1
    (folder / "journal").write_bytes(data)
    with pytest.raises(DataFolderError, match="the journal is damaged: commit 1 at position"):
        LmdbLogEngine(folder)
    losses = repair(run, folder)
    assert [(loss["partition"], loss["loss"], loss["detail"]) for loss in losses] == [
        (
            None,
            "page",
            (
                f"the journal is damaged: commit 1 at position {32 + len(rounds[0])}, although the later commit 2 is "
                "undamaged"
            ),
        ),
        END_LOST,
        ("lines-0", "gap", "no batch holds these offsets"),
    ]
    assert served(folder)[0] == [*VALUES, (3, b"v3".hex()), (5, b"v5".hex()), (6, b"v6".hex())]


def test_the_areas_of_a_damaged_journal_are_read_in_the_order_of_their_rounds(run: Run, folder: Path) -> None:
    """A journal has two areas, and the first one has the newest entry. The repair restores all entries except a damaged
    one, in the order of their rounds: entry 4 is in the first area, entries 1 to 3 are in the second.
    """
    rounds = [encoded([one]) for one in appended(folder, 4)]
    put_row(folder, JOURNAL_KEY, IDENTITY + U32.pack(1))
    older = bytearray(entry(1, rounds[0]) + entry(2, rounds[1]) + entry(3, rounds[2]))
    older[len(entry(1, rounds[0])) + 72] ^= 1
    newer = entry(4, rounds[3])
    stale = entry(0, b"") * 20
    data = (newer + stale).ljust(AREA_BYTES, b"\0") + bytes(older)
    (folder / "journal").write_bytes(data.ljust(JOURNAL_BYTES, b"\0"))
    position = AREA_BYTES + len(entry(1, rounds[0]))
    what = f"the journal is damaged: commit 2 at position {position}, although the later commit 4 is undamaged"
    with pytest.raises(DataFolderError, match=what):
        LmdbLogEngine(folder)
    losses = repair(run, folder)
    assert [(loss["partition"], loss["loss"], loss["detail"]) for loss in losses] == [
        (None, "page", what),
        END_LOST,
        ("lines-0", "gap", "no batch holds these offsets"),
    ]
    assert served(folder)[0] == [*VALUES, (3, b"v3".hex()), (5, b"v5".hex()), (6, b"v6".hex())]


def test_a_folder_without_its_journal_is_repaired(run: Run, folder: Path) -> None:
    leave_journal(folder, encoded(appended(folder, 2)))
    (folder / "journal").unlink()
    cause = "the file `journal` is missing or empty, and had the newest writes; restore the file if you can"
    with pytest.raises(DataFolderError, match=cause):
        LmdbLogEngine(folder)
    losses = repair(run, folder)
    assert [(loss["partition"], loss["loss"], loss["detail"]) for loss in losses] == [
        (None, "page", f"the journal is damaged: {cause}"),
        END_LOST,
    ]
    assert served(folder) == (VALUES, OFFSETS)


def test_an_identity_of_the_wrong_size_is_damage(run: Run, folder: Path) -> None:
    leave_journal(folder, encoded(appended(folder, 2)))
    put_row(folder, JOURNAL_KEY, b"short")
    with pytest.raises(DataFolderError, match="the journal is damaged: the stored identity of the journal has 5 bytes"):
        LmdbLogEngine(folder)
    assert [loss["detail"] for loss in repair(run, folder)] == [
        "the journal is damaged: the stored identity of the journal has 5 bytes",
        END_LOST[2],
    ]
    assert served(folder)[0] == [*VALUES, (3, b"v3".hex()), (4, b"v4".hex())]


def test_the_whole_part_of_an_older_version_s_damaged_journal_is_recovered(run: Run, folder: Path) -> None:
    first, second = (encoded([one]) for one in appended(folder, 2))
    make_older(folder, 3)
    edit(folder, OLD_JOURNAL_DB, (U64.pack(0), first + second[:-4]))
    with pytest.raises(DataFolderError, match="journal is damaged"):
        LmdbLogEngine(folder)
    losses = repair(run, folder)
    assert [(loss["partition"], loss["loss"], loss["detail"]) for loss in losses] == [
        (None, "page", "entry 0 of the journal is damaged"),
        END_LOST,
    ]
    assert served(folder) == ([*VALUES, (3, b"v3".hex())], OFFSETS)


def test_no_batch_of_another_folder_s_journal_is_recovered(run: Run, folder: Path) -> None:
    """The journal of another folder has batches for a partition number that this folder has, too. The repair ignores
    these batches.
    """
    data = b"".join(entry(turn, encoded([one]), FOREIGN) for turn, one in enumerate(appended(folder, 2)))
    put_row(folder, JOURNAL_KEY, IDENTITY + U32.pack(0) + BEFORE)
    (folder / "journal").write_bytes(data.ljust(JOURNAL_BYTES, b"\0"))
    what = (
        "the journal is damaged: the file `journal` belongs to another folder, or to an older or newer copy of this "
        "folder"
    )
    with pytest.raises(DataFolderError, match=what):
        LmdbLogEngine(folder)
    losses = repair(run, folder)
    assert [(loss["partition"], loss["loss"], loss["detail"]) for loss in losses] == [
        (None, "page", f"{what}: put back the file that belongs to this folder"),
        END_LOST,
    ]
    assert served(folder) == (VALUES, OFFSETS)
