"""Compiled parts of the group coordinator: heartbeats, offset commits and fetches, record blocks."""
