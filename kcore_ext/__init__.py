"""Compiled inner parts of kcore: codec, record batches, timer wheel, purgatory, assignor loops.

Nothing here knows of groups.
"""
