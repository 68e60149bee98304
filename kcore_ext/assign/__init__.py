"""Inner loops of the partition assignors: C arrays in, C arrays out, no Python objects inside.

`model` and `result` hold the value objects (members, topics, assignments). `lower` converts them to the arrays of a
`problem`. Most other modules hold one algorithm each. `kcore.assignors` is the public interface.
"""
