"""Deterministic simulation of a whole node with its disk, its network and its clients; see docs/simulation.md."""
