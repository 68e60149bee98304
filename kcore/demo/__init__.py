"""The demonstrations of `kcore demo` and `make demo`: real clients use a real server, and some processes are killed."""
