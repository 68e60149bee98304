"""The file of a restore plan, and the rows that result from committed offsets and a target."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.errors import KcoreError
from kcore.spark.restore.plan import ACTIONS, COMPACTED, DAMAGED, WHOLE, Checked, Plan, PlanRow, load
from kcore.spark.restore.planning import DAMAGE, LOST, NOT_COMMITTED, CommittedAsOf, counts, make_rows
from kcore.spark.restore.target import Committed, Log, TargetState

TOPIC_ID = "a" * 32
ROW = PlanRow("g", "t", 0, 30, 10, "set", "back by 20", 10, "note", WHOLE, TOPIC_ID)

texts = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.integers(0, 2**63 - 1)
rows = st.builds(
    PlanRow,
    texts,
    st.text(string.ascii_letters + "._-", min_size=1, max_size=12),
    st.integers(0, 2**31 - 1),
    st.none() | numbers,
    numbers,
    st.sampled_from(ACTIONS),
    texts,
    st.none() | numbers,
    texts,
    st.sampled_from([WHOLE, COMPACTED, DAMAGED]),
    st.sampled_from(["", TOPIC_ID]),
)
plans = st.builds(
    Plan,
    texts,
    st.none() | numbers,
    st.lists(st.tuples(texts, st.integers(0, 99), numbers), max_size=3).map(lambda found: tuple(sorted(found))),
    st.lists(st.integers(0, 99), max_size=3).map(tuple),
    st.lists(st.integers(0, 99), max_size=3).map(tuple),
    st.none() | st.builds(Checked, texts, st.none() | texts),
    st.lists(rows, max_size=6, unique_by=lambda row: (row.group, row.topic, row.partition)).map(
        lambda found: tuple(sorted(found, key=lambda row: (row.group, row.topic, row.partition)))
    ),
)


@settings(max_examples=30)
@given(plan=plans, form=st.sampled_from(["json", "csv"]))
def test_a_plan_is_read_back_from_its_file(tmp_path_factory: pytest.TempPathFactory, plan: Plan, form: str) -> None:
    """Any group name and metadata survive both file formats. The same plan gives the same bytes."""
    path = tmp_path_factory.mktemp("plan") / f"plan.{form}"
    plan.save(path)
    first = path.read_bytes()
    found = load(path)
    assert found == plan
    found.save(path)
    assert path.read_bytes() == first


def test_a_saved_plan_has_one_row_per_line_in_order(tmp_path: Path) -> None:
    """Each row is one line. The order is group, topic and partition, independent of the order of the input."""
    later = PlanRow("h", "t", 1, None, None, "refuse", "the topic was deleted", 4)
    plan = Plan("events", 1_000, (("__consumer_offsets", 3, 70),), (), (4,), Checked("here:9092", "c1"), (later, ROW))
    plan.save(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_text() == (
        "{\n"
        ' "format": "kcore-restore-plan",\n'
        ' "version": 1,\n'
        ' "source": "events",\n'
        ' "as_of": {\n'
        '  "timestamp_ms": 1000,\n'
        '  "offsets": [\n'
        "   [\n"
        '    "__consumer_offsets",\n'
        "    3,\n"
        "    70\n"
        "   ]\n"
        "  ]\n"
        " },\n"
        ' "compacted": [],\n'
        ' "damaged": [\n'
        "  4\n"
        " ],\n"
        ' "target": {\n'
        '  "where": "here:9092",\n'
        '  "cluster_id": "c1"\n'
        " },\n"
        ' "rows": [\n'
        '  {"group": "g", "topic": "t", "partition": 0, "from": 30, "to": 10, "action": "set", "why": "back by 20", '
        '"as_of": 10, "metadata": "note", "history": "whole", "topic_id": "' + TOPIC_ID + '"},\n'
        '  {"group": "h", "topic": "t", "partition": 1, "from": null, "to": null, "action": "refuse", '
        '"why": "the topic was deleted", "as_of": 4, "metadata": "", "history": "whole", "topic_id": ""}\n'
        " ]\n"
        "}\n"
    )
    plan.save(tmp_path / "plan.csv")
    assert (tmp_path / "plan.csv").read_text().splitlines()[1:] == [
        "group,topic,partition,from,to,action,why,as_of,metadata,history,topic_id",
        f"g,t,0,30,10,set,back by 20,10,note,whole,{TOPIC_ID}",
        "h,t,1,,,refuse,the topic was deleted,4,,whole,",
    ]


def edited(change: Any) -> str:
    document = json.loads(Plan("events", 1, rows=(ROW,)).as_json())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as a restore plan"),
        ("[]", "cannot be read as a restore plan"),
        ('{"rows": []}', "is not a restore plan"),
        (edited(lambda plan: plan.update(version=2)), "the plan has version 2; supported is version 1"),
        (edited(lambda plan: plan["rows"].append(plan["rows"][0])), "group 'g' has two rows for t-0"),
        (edited(lambda plan: plan["rows"][0].pop("why")), "row 1 has the columns"),
        (edited(lambda plan: plan["rows"][0].update(to=-1)), "row 1: to cannot be -1"),
        (edited(lambda plan: plan["rows"][0].update(to=None)), "row 1: the action 'set' needs an offset in `to`"),
        (
            edited(lambda plan: plan["rows"][0].update(action="delete")),
            "must be one of set, skip, refuse, unchecked",
        ),
        (edited(lambda plan: plan["rows"][0].update(partition=True)), "row 1: partition cannot be True"),
    ],
)
def test_invalid_plan_is_refused_with_a_message(tmp_path: Path, text: str, message: str) -> None:
    """Users may edit a plan, so every error has a message that names the fault."""
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(KcoreError, match=message):
        load(tmp_path / "plan.json")


def test_plans_of_versions_without_damage_are_read(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(edited(lambda plan: plan.pop("damaged")))
    assert load(tmp_path / "plan.json") == Plan("events", 1, rows=(ROW,))


def test_a_file_in_neither_format_is_refused(tmp_path: Path) -> None:
    """The suffix of the file name selects the format. Other suffixes and missing files are errors."""
    with pytest.raises(KcoreError, match=r"the name of a plan must end with \.json or \.csv"):
        Plan("events").save(tmp_path / "plan.txt")
    with pytest.raises(KcoreError, match="cannot be read"):
        load(tmp_path / "none.csv")


def state(**changes: Any) -> TargetState:
    found: dict[str, Any] = {
        "cluster_id": "c1",
        "refused": {},
        "committed": {"g": {("t", 0): Committed(30, "note")}},
        "logs": {("t", 0): Log(5, 50, TOPIC_ID)},
        "unknown_topics": frozenset(),
    }
    return TargetState(**{**found, **changes})


def as_of(offset: int | None = 10, **changes: Any) -> CommittedAsOf:
    return CommittedAsOf("g", "t", 0, offset, "note", TOPIC_ID)._replace(**changes)


@pytest.mark.parametrize(
    ("one", "target", "to", "action", "why"),
    [
        (as_of(), state(), 10, "set", "back by 20"),
        (as_of(40), state(), 40, "set", "forward by 10"),
        (as_of(), state(committed={"g": {}}), 10, "set", "nothing is committed now"),
        (as_of(30), state(), 30, "skip", "correct already"),
        (as_of(30, metadata="other"), state(), 30, "set", "the same offset, committed again"),
        (as_of(2), state(), 5, "set", "back by 25; clipped to the log's start, 5: earlier records were deleted"),
        (as_of(99), state(), 50, "set", "forward by 20; clipped to the log's end, 50"),
        (as_of(2), state(committed={"g": {("t", 0): Committed(5, "note")}}), 5, "skip",
         "correct already; clipped to the log's start, 5: earlier records were deleted"),
        (as_of(pending=True), state(), 10, "set",
         "back by 20; the offset of a transaction that was open at that time is ignored"),
        (as_of(history=COMPACTED), state(), 10, "set",
         "back by 20; the log was compacted since; this record still exists"),
        (as_of(None, history=COMPACTED), state(), None, "refuse", LOST),
        (as_of(history=DAMAGED), state(), 10, "set",
         "back by 20; parts of the log are missing: a later offset may have been committed"),
        (as_of(None, history=DAMAGED), state(), None, "refuse", DAMAGE),
        (as_of(None, history=DAMAGED), None, None, "refuse", DAMAGE),
        (as_of(), state(refused={"g": "the group has 1 member (Stable)"}), None, "refuse",
         "the group has 1 member (Stable)"),
        (as_of(), state(unknown_topics=frozenset({"t"}), logs={}), None, "refuse", "the topic was deleted"),
        (as_of(), state(logs={}), None, "refuse", "the partition is gone, or has no leader"),
        (as_of(topic_id="b" * 32), state(), None, "refuse",
         "the topic was recreated: its offsets refer to other records"),
        (as_of(topic_id=""), state(), 10, "set", "back by 20"),
        (as_of(), state(logs={("t", 0): Log(5, 50)}), 10, "set", "back by 20"),
        (as_of(), state(committed={"g": {("t", 0): Committed(30, "note", True)}}), None, "refuse",
         "a transaction that is open now holds an offset"),
        (as_of(), None, 10, "unchecked", "no target was checked"),
        (as_of(None, history=COMPACTED), None, None, "refuse", LOST),
    ],
)  # fmt: skip
def test_each_case_of_an_offset_has_its_row(
    one: CommittedAsOf, target: TargetState | None, to: int | None, action: str, why: str
) -> None:
    """Compares the committed offset, the target, and the row's offset, action and reason in each case."""
    (row,) = make_rows([one], target)
    assert (row.to_offset, row.action, row.why) == (to, action, why)
    assert (row.as_of, row.history, row.metadata) == (one.offset, one.history, one.metadata)
    assert row.from_offset == (
        None if target is None or not target.committed["g"] else target.committed["g"]["t", 0][0]
    )


def test_equal_offsets_are_committed_again_on_request() -> None:
    """A plan skips offsets that are already right. On request it commits them again, which renews their retention."""
    (row,) = make_rows([as_of(30)], state(), include_same=True)
    assert (row.from_offset, row.to_offset, row.action, row.why) == (30, 30, "set", "the same offset, committed again")


def test_an_offset_not_committed_at_the_moment_is_skipped() -> None:
    """The cluster has an offset of a partition for which no offset was committed at the moment to restore. The plan
    skips it.
    """
    target = state(committed={"g": {("t", 0): Committed(30, "note"), ("s", 7): Committed(3, "")}})
    first, second = make_rows([as_of()], target)
    assert first == PlanRow("g", "s", 7, 3, None, "skip", NOT_COMMITTED)
    assert (second.topic, second.action) == ("t", "set")
    assert counts((first, second)) == {"set": 1, "skip": 1, "refuse": 0, "unchecked": 0}
