"""Heartbeat of a member that is where it believes to be, for other compiled modules."""

from kcore_ext.quick_heartbeat cimport QuickHeartbeat
from kcore_ext.slots cimport Slots


cdef class HeartbeatCore(QuickHeartbeat):
    cdef object _dead               # the state of a group that is gone
    cdef Slots _of_machine
    cdef Slots _of_group
    cdef Slots _of_member
