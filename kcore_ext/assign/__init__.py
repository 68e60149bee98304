"""The inner loops of the partition assignors, which read and write C arrays and use no Python objects.

`model` and `result` hold the value objects (members, topics, assignments). `lower` converts them to the arrays of a
`problem`. Most other modules hold one algorithm each. `kcore.assignors` is the public interface.
"""
