"""The notebook docs/tour.ipynb: ten questions of an on-call engineer, each with a table and a plot."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tour.ipynb"
QUESTIONS = 10


def questions(cells: list[Any]) -> dict[str, Any]:
    """Returns the code cell of each question, by the number and text of the question."""
    found: dict[str, Any] = {}
    for cell, following in pairwise(cells):
        heading = re.match(r"## (\d+\. .*\?)$", "".join(cell["source"]).partition("\n")[0])
        if cell["cell_type"] == "markdown" and heading is not None:
            found[heading[1]] = following
    return found


def check_questions(cells: list[Any]) -> None:
    """Checks that every question has a table and a plot, and that no cell failed."""
    cells_by_question = questions(cells)
    assert [question.partition(".")[0] for question in cells_by_question] == [
        str(number + 1) for number in range(QUESTIONS)
    ]
    for question, cell in cells_by_question.items():
        outputs = [output.get("data", {}) for output in cell["outputs"]]
        assert any("image/png" in data for data in outputs), question
        assert any("text/html" in data for data in outputs), question
    assert not [output for cell in cells for output in cell.get("outputs", ()) if output["output_type"] == "error"]


def test_the_committed_notebook_has_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    check_questions(cells)
    texts = [json.dumps(output) for cell in cells for output in cell.get("outputs", ())]
    assert not [text for text in texts if "Empty DataFrame" in text and "severity" not in text]
    assert not [text for text in texts if '"stderr"' in text or re.search(r"/(home|root|tmp)/", text)]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.clients
@pytest.mark.timeout(900)
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real clients make a history, and every question has an output."""
    pytest.importorskip("matplotlib", reason="the extra `tour` is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the extra `tour` is not installed")
    manager = pytest.importorskip("jupyter_client.manager", reason="the extra `tour` is not installed")
    nbformat = pytest.importorskip("nbformat", reason="the extra `tour` is not installed")
    monkeypatch.delenv("KCORE_TOUR_EVENTS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    notebook = nbformat.read(NOTEBOOK, 4)
    kernel = manager.AsyncKernelManager(kernel_name="python3")
    kernel.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client = nbclient.NotebookClient(notebook, km=kernel, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    check_questions(notebook.cells)
