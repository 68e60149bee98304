# distutils: language = c++
"""Value objects of the typed face, with the C fields that lowering reads."""

from libcpp.vector cimport vector


cdef class Topics:
    cdef readonly tuple ordered       # ascending: names by UTF-16, ids by signed halves
    cdef readonly bint has_racks
    cdef readonly tuple rack_names
    cdef dict index                   # key or alias -> position in keys
    cdef dict rack_index
    cdef vector[int] first            # len(keys) + 1
    cdef vector[int] rack_first       # partitions + 1
    cdef vector[int] rack_list
    cdef long long serial
    cdef object _weak


cdef class Subscription:
    cdef readonly tuple topics
    cdef readonly int listed          # length of the list as given, duplicates included
    cdef readonly frozenset unique
    cdef vector[int] resolved         # ascending positions in the Topics of `serial`
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
