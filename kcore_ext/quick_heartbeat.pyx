"""What heartbeats of both protocols have in common: the way to the group's shard, where a session begins anew.

Which requests are usual, and what a shard does with one, is said by the subclasses.
"""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH

from kcore_ext.message_shape cimport Shape, get
from kcore_ext.shard_core cimport ShardCore, ready_shard


cdef class QuickHeartbeat:
    """See quick_heartbeat.pyi."""

    def __init__(self, shards not None, authorizer, Shape request not None):
        self._shards = shards
        self._authorizer = authorizer
        self._by_partition = shards.by_partition
        self._partitions = shards.partitions
        self._request = request

    def handle(self, context, request):
        if self._authorizer is None:
            answer = self._answer(context, request)
            if answer is not None:
                self.quick += 1
                return answer
        return self.handle_any(context, request)

    def decide(self, machine, context, request):
        answer = self._renewed(machine, context, request)
        if answer is not None:
            self.quick += 1
            return answer
        return self.decide_any(machine, context, request)

    cdef object _answer(self, object context, object request):
        """The response, or a `Pending` of it; None if the request is not a usual one."""
        cdef PyObject* group_id = get(<PyObject*>request, self._request, GROUP_ID)
        cdef ShardCore shard
        if group_id is NULL or not PyUnicode_CheckExact(<object>group_id) or not PyUnicode_GET_LENGTH(<object>group_id):
            return None
        if not self._is_usual(<PyObject*>request):
            return None
        shard = ready_shard(self._by_partition, <str>group_id, self._partitions)
        if shard is None:
            return None
        answer = self._renewed(shard.machine, context, request)
        return None if answer is None else shard.when_durable(self, context, request, answer)

    cdef bint _is_usual(self, PyObject* request) except -1:
        """Whether a request, of a group with a name, passes what is checked in front of the shard."""
        return True

    cdef object _renewed(self, object machine, object context, object request):
        """Begins a member's session anew, and returns the response; None if nothing was done."""
        return None
