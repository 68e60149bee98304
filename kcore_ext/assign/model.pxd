"""Value objects of the public API, with the C fields that lowering reads."""

from cpython.long cimport PyLong_CheckExact
from cpython.number cimport PyNumber_Index

from kcore_ext.assign.containers cimport Memory

cdef enum:
    # Partition numbers are C ints, and so is the largest one plus one.
    MOST_PARTITIONS = 2147483646


cdef class Topics:
    cdef readonly tuple ordered       # ascending: names by UTF-16, ids by signed halves
    cdef readonly bint has_racks
    cdef readonly tuple rack_names
    cdef dict index                   # key or alias -> position in keys
    cdef dict rack_index
    cdef Memory memory                # of the arrays
    cdef int count                    # len(keys)
    cdef int* first                   # len(keys) + 1
    cdef int* rack_first              # partitions + 1
    cdef int* rack_list
    cdef long long serial

    # Rows of assignments that are one run of partitions, by the run's first partition; None: not used yet.
    cdef list runs
    cdef int run_mask
    cdef int* run_start
    cdef int* run_count  # 0: empty

    cdef int open_runs(self) except -1


cdef class Subscription:
    cdef readonly tuple topics
    cdef readonly int listed          # length of the list as given, duplicates included
    cdef readonly frozenset unique
    cdef Memory memory                # of `resolved`
    cdef int* resolved                # ascending positions in the Topics of `serial`
    cdef int resolved_count
    cdef list missing
    cdef long long serial
    cdef object __weakref__

    cdef int resolve(self, Topics topics) except -1


cdef class Member:
    cdef readonly str member_id
    cdef readonly Subscription subscription
    cdef readonly object owned
    cdef readonly int generation_id
    cdef readonly object rack_id
    cdef readonly object instance_id
    cdef readonly object user_data


cdef inline long as_number(object given) except? -1:
    """Converts an int or an int-like object (such as numpy's); raises TypeError for others."""
    return given if PyLong_CheckExact(given) else PyNumber_Index(given)
