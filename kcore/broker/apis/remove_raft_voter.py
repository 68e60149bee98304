"""RemoveRaftVoter (key 81, version 0): refuses removals, because the quorum has exactly one voter (KIP-853)."""

from __future__ import annotations

from typing import ClassVar

from kcore.broker.apis.quorum_changes import MembershipApi
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class RemoveRaftVoterApi(MembershipApi[RemoveRaftVoterRequest, RemoveRaftVoterResponse]):
    """Handler of RemoveRaftVoter requests. It refuses every request.

    The quorum has one voter, which is this node. A request that names this voter is refused, because a quorum needs a
    voter. A request that names any other voter is refused, because that voter does not exist.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.REMOVE_RAFT_VOTER
    request_type: ClassVar[type] = RemoveRaftVoterRequest
    response_type: ClassVar[type] = RemoveRaftVoterResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def check(self, request: RemoveRaftVoterRequest) -> KafkaError:
        """Returns the reason of the refusal.

        Raises:
            KafkaError: the request is for another cluster.
        """
        self.check_cluster(request.cluster_id)
        if (request.voter_id, request.voter_directory_id) == (self.cluster.node_id, self.cluster.directory_id):
            return KafkaError(ErrorCode.INVALID_REQUEST, "the only voter of a quorum cannot be removed")
        return KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{request.voter_id} is not a voter with this directory")
