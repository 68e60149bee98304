"""`kcore log repair` of a folder whose journal file belongs to another folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import kcore
from kcore.log import DataFolderError, LmdbLogEngine
from kcore.log.lmdb_layout import JOURNAL_KEY, META_DB, U32
from tests.cli.conftest import populate
from tests.cli.test_log_repair import END_LOST, OFFSETS, SETTINGS, VALUES, Run, appended, edit, repair, served
from tests.log.journals import IDENTITY, JOURNAL_BYTES, encoded, entry

BEFORE = bytes(range(100, 116))
FOREIGN = bytes(range(16, 32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with kcore.open(path, config=SETTINGS) as engine:
        populate(engine)
    return path


def test_no_batch_of_another_folder_s_journal_is_recovered(run: Run, folder: Path) -> None:
    """The journal of another folder has batches for a partition number that this folder has, too. The repair ignores
    these batches.
    """
    data = b"".join(entry(turn, encoded([one]), FOREIGN) for turn, one in enumerate(appended(folder, 2)))
    edit(folder, META_DB, (JOURNAL_KEY, IDENTITY + U32.pack(0) + BEFORE))
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
