"""The memory of a request queue of earlier requests; only for other compiled modules."""
