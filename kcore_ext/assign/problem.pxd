# distutils: language = c++
"""The arrays every assignor works on: one Problem is one group at one moment."""

from libcpp.vector cimport vector


cdef class Problem:
    # Sizes: members, topics, partitions of all topics, kinds of subscription.
    cdef readonly int members
    cdef readonly int topics
    cdef readonly int partitions
    cdef readonly int kinds
    # Partitions of topics that somebody subscribes to; equal to `partitions` when nobody misses one.
    cdef readonly int subscribed_partitions
    # Sticky's notion (lists of equal length and content) and KIP-848's (every topic has every member).
    cdef public bint equal
    cdef public bint homogeneous

    cdef vector[int] first           # topics + 1: first partition of each topic
    cdef vector[int] kind_of         # members
    cdef vector[int] kind_first      # kinds + 1
    cdef vector[int] kind_topics     # ascending within a kind
    cdef vector[char] subscribed     # topics: somebody wants it
    cdef vector[int] order           # static members first (empty: index order)

    # What was owned before: an owner a partition (given), or rows that may conflict (claims).
    cdef bint has_owner
    cdef vector[int] given_owner
    cdef bint has_claims
    cdef vector[int] claim_first     # members + 1
    cdef vector[int] claims
    cdef vector[int] generation      # members: of the member's data
    cdef vector[int] subscription_generation  # members: of the subscription field

    cdef bint has_racks              # some member names a rack and partitions have racks
    cdef readonly int racks
    cdef vector[int] member_rack     # members, -1: none
    cdef vector[int] rack_first      # partitions + 1
    cdef vector[int] rack_list

    # Topics with the same subscribers are one class; built on first use.
    cdef bint classed
    cdef readonly int classes
    cdef vector[int] class_of        # topics (-1: nobody subscribes)
    cdef vector[int] class_first     # classes + 1
    cdef vector[int] class_members   # ascending index
    cdef vector[int] kind_class_first
    cdef vector[int] kind_classes
    cdef vector[int] class_ordered   # as class_members, in static-first order (empty: the same)

    cdef int seal(self) except -1
    cdef int build_classes(self) noexcept nogil
    cdef int _class_rows(self, vector[int]& representative) noexcept nogil
    cdef void ensure_classes(self) noexcept nogil
    cdef const int* ordered_members(self) noexcept nogil
    cdef bint on_rack(self, int partition, int rack) noexcept nogil
    cdef bint rack_aware(self) noexcept nogil
    cdef bint subscribes(self, int member, int topic) noexcept nogil
    cdef int owners_of_claims(self, vector[int]& owner) noexcept nogil
    cdef int topic_of_each(self, vector[int]& out) noexcept nogil


cdef int checked_owner(Problem problem, object previous, vector[int]& owner) except -1
cdef int checked_rows(Problem problem, object claim_first, object claims, vector[int]& first, vector[int]& rows) except -1
cdef object as_array(vector[int]& values)
