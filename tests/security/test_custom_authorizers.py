"""Custom authorizers: their decisions, requests about many topics, and objects that are no authorizer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kcore.broker.apis import init_producer_id
from kcore.errors import ConfigError
from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.authorizer import ResourceType as Kind
from kcore.protocol.messages.describe_acls import DescribeAclsRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import Pending, RequestContext
from kcore.runtime.sliced import SLICE_COST_US
from tests.kit import create, fetch
from tests.security.guarded import ADMIN, ALICE, Guarded
from tests.security.test_acls import any_entry


class OnlyReaders:
    """A custom authorizer that allows only READ."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def allowed(self, context: Any, operation: Op, resource_type: Kind, resource_name: str) -> bool:
        return operation in (Op.READ, Op.DESCRIBE, Op.CREATE)


def test_a_custom_authorizer_decides() -> None:
    """The custom authorizer decides each request. The APIs of access control lists are disabled."""
    engine = Guarded(authorizer_class_name="tests.security.test_custom_authorizers:OnlyReaders")
    assert engine.codes(create("t")) == set()
    assert engine.codes(fetch("t"), 12) == set()
    assert engine.codes(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)) == {31}
    assert engine.codes(DescribeAclsRequest(**any_entry()), 3) == {54}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("os:system", "cannot be called with the configuration"), ("builtins:id", "has no method allowed")],
)
def test_an_object_that_is_no_authorizer_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"authorizer.class.name={name} {reason}"):
        Guarded(authorizer_class_name=name)


class OnlyWriters:
    """A custom authorizer, which allows Alice only writes to one topic.

    Attributes:
        checked: the topics whose WRITE permission was checked.
        writable: the topic that Alice may write.
    """

    def __init__(self, config: Any) -> None:
        self.checked: list[str] = []
        self.writable = ""

    def allowed(self, context: Any, operation: Op, resource_type: Kind, resource_name: str) -> bool:
        if context.principal == ADMIN:
            return True
        if operation is not Op.WRITE or resource_type is not Kind.TOPIC:
            return False
        self.checked.append(resource_name)
        return resource_name == self.writable


@pytest.mark.parametrize(("writable", "code"), [("t17", 0), ("t18", 0), ("other", 31)])
@pytest.mark.parametrize("sliced", [True, False])
def test_a_custom_authorizer_decides_about_many_topics_in_slices(
    writable: str, code: int, sliced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may be idempotent if it may write to any topic. The authorizer checks the topics one by one, so these
    checks run in slices.
    """
    monkeypatch.setattr(init_producer_id, "TOPICS_PER_STEP", 4)
    monkeypatch.setattr(init_producer_id, "PERMISSION_COST_US", SLICE_COST_US // 4)
    node = Guarded(authorizer_class_name="tests.security.test_custom_authorizers:OnlyWriters")
    node.send(create(*(f"t{number:02}" for number in range(19))), who=ADMIN)
    engine, authorizer = node.engine, node.engine.authorizer
    assert isinstance(authorizer, OnlyWriters)
    authorizer.writable = writable
    engine.slices.requests.enabled = sliced
    engine.turn()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    response = engine.submit(RequestContext(5, principal=ALICE), request)
    counts = [len(authorizer.checked)]
    while engine.slices or engine.pipeline.dirty:
        engine.slices.step()
        engine.commit()
        counts.append(len(authorizer.checked))
    response = response.response if isinstance(response, Pending) else response
    assert (response.error_code, response.producer_id >= 0) == (code, not code)
    names = [topic.name for topic in engine.topics.all()]
    assert authorizer.checked == (names if code else names[: names.index(writable) + 1])
    if sliced:
        assert len(counts) > 4
        assert max(after - before for before, after in pairwise([0, *counts])) == 4


@pytest.mark.parametrize(
    "settings",
    [
        {"authorizer_class_name": "nowhere:Nothing"},
        {"authorizer_class_name": "tests.security.test_custom_authorizers:Missing"},
        {"authorizer_class_name": "tests.security.test_custom_authorizers:Any"}, {"authorizer_class_name": "kafka.Acl"},
        {"super_users": "admin"},
    ],
)  # fmt: skip
def test_invalid_authorizers_stop_the_start(settings: dict[str, str]) -> None:
    """The start fails, because the node would otherwise run without access control."""
    with pytest.raises((ConfigError, TypeError)):
        Guarded(**settings)
