"""Tests a session timeout in virtual time: two members join, one stops its heartbeats, the other gets its partitions.

python examples/manual_clock.py
"""

from __future__ import annotations

import kcore
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kcore.runtime import Pending

SESSION_MS = 45_000


def join(node: kcore.EmbeddedNode, name: str, member_id: str = "") -> Pending:
    """Starts a join as a client does: first to get a member id, then with that id (KIP-394)."""
    request = JoinGroupRequest(
        group_id="workers",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="work",
        protocols=[JoinGroupRequestProtocol(name="any", metadata=b"")],
    )
    response = node.start(request, client_id=name)
    if isinstance(response, Pending):
        return response
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return join(node, name, response.member_id)


def heartbeat(node: kcore.EmbeddedNode, member: JoinGroupResponse) -> ErrorCode:
    response = node.send(
        HeartbeatRequest(group_id="workers", generation_id=member.generation_id, member_id=member.member_id)
    )
    return next(code for code in ErrorCode if code == response.error_code)


def main() -> None:
    clock = kcore.ManualClock()
    with kcore.open(clock=clock) as node:
        joins = [join(node, "alice"), join(node, "bob")]
        node.advance(6_000)  # twice group.initial.rebalance.delay.ms, because a member joined in the first period
        alice, bob = (pending.response for pending in joins)
        print(f"generation {alice.generation_id}: {alice.leader.split('-')[0]} leads, both are members")

        for _ in range(4):  # alice sends a heartbeat every 15 s, bob sends none
            node.advance(15_000)
            print(f"after {clock.monotonic_ms() // 1000:3} s alice gets {heartbeat(node, alice).name}")
        print(f"bob gets {heartbeat(node, bob).name}")


if __name__ == "__main__":
    main()
