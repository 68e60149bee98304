"""Compiled helpers: byte order, Java hashes, limits of records, and access to the slots of Python objects from C."""
