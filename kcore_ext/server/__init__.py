"""Compiled parts of the server: the request queue of a connection."""
