"""Fault injection for memory allocations: every compiled module must survive each failed allocation."""
