"""Inner loops of the partition assignors: C arrays in, C arrays out, no Python objects inside.

``model`` holds the compiled value objects (members, topics, assignments), ``problem`` lowers them
to arrays, and the other modules hold one algorithm each. ``kcore.assignors`` is the public interface.
"""
