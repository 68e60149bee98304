"""The demonstration: a real server, real clients, real kills. `kcore demo`, or `make demo`."""
