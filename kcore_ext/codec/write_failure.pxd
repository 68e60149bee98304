"""Raises the exception of a failed encoding."""

from kcore_ext.codec.write cimport Writer

cdef int raise_failure_of(Writer* writer, int version) except -1
