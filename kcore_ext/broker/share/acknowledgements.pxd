"""Checks and counts of acknowledgement batches, for other compiled modules; acknowledgements.pyi documents them."""

cpdef bint valid(batches, int version, bint renews) except -1
