"""Texts that UTF-8 cannot encode, and flags of another type than bool, as arguments of the client API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kcore
from kcore.errors import ConfigError


@pytest.fixture(scope="module")
def embedded() -> Iterator[kcore.EmbeddedNode]:
    with kcore.open() as node:
        node.topics.create("t", 1)
        yield node


SURROGATE = "file-\udcff"  # from os.fsdecode(b"file-\xff")
SURROGATES: dict[str, Callable[[Any], Any]] = {
    "id of a group": lambda node: node.group(SURROGATE).commit({("t", 0): 1}),
    "ids of groups": lambda node: node.groups.describe([SURROGATE]),
    "metadata of an offset": lambda node: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata(1, SURROGATE)}),
    "instance id": lambda node: node.group("g").join("t", instance_id=SURROGATE),
    "rack": lambda node: node.group("g").consume("t", rack=SURROGATE),
    "pattern": lambda node: node.group("g").join(pattern=SURROGATE),
    "topics of a member": lambda node: node.group("g").join(SURROGATE),
    "group of a queue": lambda node: node.queue("t", group=SURROGATE),
    "transactional id": lambda node: node.transaction(SURROGATE),
    "transactional ids": lambda node: node.transactions.describe(SURROGATE),
    "user": lambda node: node.users.set_password(SURROGATE, "p"),
    "user of a quota": lambda node: node.quotas.set({"producer_byte_rate": 1}, user=SURROGATE),
    "name of a topic": lambda node: node.topics[SURROGATE],
    "entry": lambda node: kcore.Acl("TOPIC", SURROGATE, "User:a", "READ"),
}
"""Name of an argument -> a call with a text that UTF-8 cannot encode."""


@pytest.mark.parametrize("case", SURROGATES)
def test_a_text_that_utf_8_cannot_encode_is_an_error_before_a_request(
    embedded: kcore.EmbeddedNode, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An embedded engine stores the text in a record, where UTF-8 must encode it, as a connection must in a request."""
    with pytest.raises(ConfigError, match=r"has a character that UTF-8 cannot encode: 'file-\\udcff'$"):
        SURROGATES[case](embedded)
    assert caplog.records == []


def test_a_flag_may_be_any_true_value() -> None:
    with kcore.open() as node, kcore.connect(node.listen().bootstrap) as connected:
        assert node.group("g").committed(stable=1) == {}  # type: ignore[arg-type]
        assert connected.group("g").committed(stable=1) == {}  # type: ignore[arg-type]
