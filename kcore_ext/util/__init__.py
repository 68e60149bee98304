"""Compiled helpers: byte order, Java hashes, limits of records, and slots of Python objects read as C fields."""
