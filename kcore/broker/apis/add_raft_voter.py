"""AddRaftVoter (key 80, versions 0-1): refuses new voters, because the quorum has exactly one voter (KIP-853)."""

from __future__ import annotations

from typing import ClassVar

from kcore.broker.apis.quorum_changes import MembershipApi
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


class AddRaftVoterApi(MembershipApi[AddRaftVoterRequest, AddRaftVoterResponse]):
    """Handler of AddRaftVoter requests. It refuses every request.

    The quorum has one voter, which is this node. A request that names this node is refused, because this node is
    already a voter. A request that names any other node is refused, because no other node can join the quorum.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.ADD_RAFT_VOTER
    request_type: ClassVar[type] = AddRaftVoterRequest
    response_type: ClassVar[type] = AddRaftVoterResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)
    differs: ClassVar[str] = "A quorum has one voter. A request to add another gets REQUEST_TIMED_OUT at once."

    def check(self, request: AddRaftVoterRequest) -> KafkaError:
        """Returns the reason of the refusal.

        Raises:
            KafkaError: the request is for another cluster.
        """
        self.check_cluster(request.cluster_id)
        if request.voter_id == self.cluster.node_id:
            return KafkaError(ErrorCode.DUPLICATE_VOTER, f"node {request.voter_id} is already a voter")
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"voter {request.voter_id} does not take part in this quorum")
