"""The demonstration: a real server and real clients, some of which are killed. `kcore demo`, or `make demo`."""
