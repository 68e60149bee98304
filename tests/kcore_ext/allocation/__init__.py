"""Fault injection for allocations: every compiled module survives each failed allocation."""
