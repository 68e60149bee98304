"""The input of all assignors as arrays. A `Problem` describes the members and topics of one group."""

from kcore_ext.assign.containers cimport IntVec, Memory

cdef enum:
    # In a group with so few members and partitions, releasing the GIL costs more than the work.
    SMALL_GROUP = 4096


cdef class Problem:
    cdef Memory memory               # of all arrays below
    # Sizes: members, topics, partitions of all topics, kinds of subscription.
    cdef readonly int members
    cdef readonly int topics
    cdef readonly int partitions
    cdef readonly int kinds
    # Partitions of subscribed topics; equal to `partitions` if every topic has a subscriber.
    cdef readonly int subscribed_partitions
    # Equal subscriptions by sticky's definition (lists of equal length and content) and by KIP-848's (every topic has
    # every member).
    cdef public bint equal
    cdef public bint homogeneous

    cdef int* first  # topics + 1: first partition of each topic
    cdef int* kind_of                # members
    cdef int* kind_first             # kinds + 1
    cdef int* kind_topics            # ascending within a kind
    cdef char* subscribed  # topics: at least one member subscribes
    cdef int* order                  # static members first (NULL: index order)

    # The previous assignment: one owner per partition (given), or rows that may conflict (claims).
    cdef bint has_owner
    cdef int* given_owner
    cdef bint has_claims
    cdef int* claim_first  # members + 1
    cdef IntVec claims
    cdef int* generation             # members: of the member's data (NULL: not known)
    cdef int* subscription_generation  # members: of the subscription (NULL: not known)

    cdef bint has_racks              # some member names a rack and partitions have racks
    cdef readonly int racks
    cdef int* member_rack            # members, -1: none
    cdef int* rack_first             # partitions + 1
    cdef int* rack_list

    # Topics with the same subscribers are one class; built on first use.
    cdef bint classed
    cdef readonly int classes
    cdef int* class_of  # topics (-1: no subscriber)
    cdef int* class_first            # classes + 1
    cdef int* class_members          # ascending index
    cdef int* kind_class_first
    cdef int* kind_classes
    cdef int* class_ordered          # as class_members, in static-first order (NULL: the same)

    cdef int seal(self) except -1
    cdef int build_classes(self, Memory* scratch) except -1 nogil
    cdef int _class_rows(self, Memory* scratch, const int* representative, const int* members_of) except -1 nogil
    cdef int ensure_classes(self) except -1 nogil
    cdef const int* ordered_members(self) noexcept nogil
    cdef bint on_rack(self, int partition, int rack) noexcept nogil
    cdef int rack_aware(self, Memory* scratch) except -1 nogil
    cdef bint subscribes(self, int member, int topic) noexcept nogil
    cdef int owners_of_claims(self, int* owner) noexcept nogil
    cdef int topic_of_each(self, int* out) noexcept nogil


cdef int* numbers_of(Memory* memory, object values, Py_ssize_t n, str complaint) except NULL
cdef int checked_owner(Problem problem, object previous, int* owner) except -1
cdef int checked_rows(Problem problem, object claim_first, object claims, Memory* memory, int** first,
                      int** rows) except -1
cdef object as_array(const int* values, Py_ssize_t n)
cdef object new_array(Py_ssize_t n, int** data)
