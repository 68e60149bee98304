"""Limits of the records in the coordinators' logs, for compiled modules."""

cdef enum:
    RECORD_OVERHEAD = 21    # at most: length, attributes, timestamp and offset deltas, key and value lengths
    MAX_STRING = 32767      # bytes of a string in a key or a value: its length is an int16
