"""Compiled helpers: byte order, Java hashes, size limits of records, locks, shared texts, slots of Python objects."""
