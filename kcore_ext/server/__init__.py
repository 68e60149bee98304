"""Compiled parts of the server: connections, their request queues, and the APIs as a server serves them."""
