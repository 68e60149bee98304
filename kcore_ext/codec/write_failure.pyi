"""A function that raises the exception for a failed encoding. Only compiled modules use it."""
