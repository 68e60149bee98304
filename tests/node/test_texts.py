"""Texts that fit in no request, and flags of another type than bool, as arguments of the client API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kcore
from kcore.errors import ConfigError
from kcore.node.types import GroupMetadata

LONG = "é" * 16_384
"""A text of 32,768 bytes, one more than a request can have."""

SURROGATE = "a\ud800"
"""A text with a lone surrogate; `os.fsdecode` returns such texts for names that are not UTF-8."""


@pytest.fixture(scope="module")
def embedded() -> Iterator[kcore.EmbeddedNode]:
    with kcore.open() as node:
        node.topics.create("t", 1)
        yield node


def commit_in_transaction(node: Any, group: Any, offsets: Any) -> None:
    """Commits offsets in a transaction."""
    with node.transaction("texts") as transaction:
        transaction.commit_offsets(group, offsets)


CALLS: dict[str, tuple[Callable[[Any, str], Any], str]] = {
    "group": (lambda node, text: node.group(text), "the id of a group"),
    "groups": (lambda node, text: node.groups.describe(["g", text]), "group_ids"),
    "topics of a member": (lambda node, text: node.group("g").join(["t", text]), "topics"),
    "instance id": (lambda node, text: node.group("g").join("t", instance_id=text), "instance_id"),
    "instance id of a classic member": (
        lambda node, text: node.group("g").join("t", instance_id=text, protocol="classic"),
        "instance_id",
    ),
    "instance id of a consumer": (lambda node, text: node.group("g").consume("t", instance_id=text), "instance_id"),
    "rack of a member": (lambda node, text: node.group("g").join("t", rack=text), "rack"),
    "rack of a classic consumer": (
        lambda node, text: node.group("g").consume("t", rack=text, protocol="classic"),
        "rack",
    ),
    "pattern": (lambda node, text: node.group("g").consume(pattern=text), "pattern"),
    "assignor": (lambda node, text: node.group("g").join("t", server_assignor=text), "server_assignor"),
    "member": (lambda node, text: node.group("g").remove_members(member_ids=text), "member_ids"),
    "static member": (lambda node, text: node.group("g").remove_members(instance_ids=[text]), "instance_ids"),
    "reason": (lambda node, text: node.group("g").remove_members(member_ids="m", reason=text), "reason"),
    "topic of an offset": (lambda node, text: node.group("g").commit({(text, 0): 1}), "the name of a topic"),
    "topics of offsets": (
        lambda node, text: node.group("g").commit({("t", 0): 1, (text, 0): 1}),
        "the name of a topic",
    ),
    "metadata of an offset": (
        lambda node, text: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata(1, text)}),
        "metadata",
    ),
    "topic of a committed offset": (lambda node, text: node.group("g").committed([(text, 0)]), "the name of a topic"),
    "setting of a group": (
        lambda node, text: node.group("g").set_config({"consumer.session.timeout.ms": text}),
        "the value of consumer.session.timeout.ms",
    ),
    "name of a setting": (lambda node, text: node.topics["t"].set_config({text: 1}), "a key of config"),
    "setting of a topic": (
        lambda node, text: node.topics["t"].set_config({"cleanup.policy": text}),
        "the value of cleanup.policy",
    ),
    "setting of a new topic": (
        lambda node, text: node.topics.create("u", config={"cleanup.policy": text}),
        "the value of cleanup.policy",
    ),
    "setting of a broker": (
        lambda node, text: node.brokers[1].set_config({"log.cleaner.threads": text}),
        "the value of log.cleaner.threads",
    ),
    "topic": (lambda node, text: node.topics[text], "the name of a topic"),
    "topics": (lambda node, text: node.topics.describe(text), "names"),
    "topic of a record": (lambda node, text: node.producer().append(text, "v"), "the name of a topic"),
    "topic of a producer": (lambda node, text: node.producer().look_up(text), "the name of a topic"),
    "transactional id": (lambda node, text: node.transaction(text), "transactional_id"),
    "transactional ids": (lambda node, text: node.transactions.describe(text), "transactional_ids"),
    "pattern of transactional ids": (lambda node, text: node.transactions.list(pattern=text), "pattern"),
    "partition of producers": (lambda node, text: node.transactions.producers([(text, 0)]), "the name of a topic"),
    "group of a transaction": (
        lambda node, text: commit_in_transaction(node, text, {("t", 0): 1}),
        "the id of a group",
    ),
    "group metadata of a transaction": (
        lambda node, text: commit_in_transaction(node, GroupMetadata(text), {("t", 0): 1}),
        "group_id",
    ),
    "member of a transaction": (
        lambda node, text: commit_in_transaction(node, GroupMetadata("g", text, 1), {("t", 0): 1}),
        "member_id",
    ),
    "static member of a transaction": (
        lambda node, text: commit_in_transaction(node, GroupMetadata("g", "m", 1, text), {("t", 0): 1}),
        "instance_id",
    ),
    "offset of a transaction": (
        lambda node, text: commit_in_transaction(node, "g", {(text, 0): 1}),
        "the name of a topic",
    ),
    "group of a queue": (lambda node, text: node.queue("t", group=text), "group"),
    "topic of a queue": (lambda node, text: node.queue(text, group="q"), "topics"),
    "rack of a queue": (lambda node, text: node.queue("t", group="q", rack=text), "rack"),
    "user": (lambda node, text: node.users.set_password(text, "p"), "user"),
    "password": (lambda node, text: node.users.set_password("u", text), "password"),
    "user of a quota": (lambda node, text: node.quotas.set({"producer_byte_rate": 1}, user=text), "user"),
    "client of a quota": (lambda node, text: node.quotas.describe(client_id=text), "client_id"),
    "name of a resource": (lambda node, text: node.acls.describe(resource_name=text), "resource_name"),
    "principal": (lambda node, text: node.acls.describe(principal=text), "principal"),
    "entry of an access control list": (lambda _, text: kcore.Acl("TOPIC", "t", "User:a", "READ", host=text), "host"),
    "client id": (lambda _, text: kcore.connect("127.0.0.1:1", client_id=text), "client_id"),
}
"""Name of an argument -> a call that passes a text in this argument, and the start of the error."""


@pytest.mark.parametrize("case", CALLS)
def test_a_text_that_is_too_long_is_an_error_of_the_call(embedded: kcore.EmbeddedNode, case: str) -> None:
    call, argument = CALLS[case]
    with pytest.raises(ConfigError, match=f"^{argument} has 32768 bytes .*; valid: at most 32767 bytes$"):
        call(embedded, LONG)


@pytest.mark.parametrize("case", CALLS)
def test_a_text_that_utf_8_cannot_encode_is_an_error_of_the_call(embedded: kcore.EmbeddedNode, case: str) -> None:
    """An embedded node encodes no request, so the records of a group with such a text could not be written."""
    call, argument = CALLS[case]
    with pytest.raises(ConfigError, match=rf"^{argument} has a character that UTF-8 cannot encode: 'a\\ud800'$"):
        call(embedded, SURROGATE)


def test_a_flag_may_be_any_true_value() -> None:
    with kcore.open() as node, kcore.connect(node.listen().bootstrap) as connected:
        assert node.group("g").committed(stable=1) == {}  # type: ignore[arg-type]
        assert connected.group("g").committed(stable=1) == {}  # type: ignore[arg-type]
