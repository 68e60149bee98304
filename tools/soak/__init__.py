"""A soak test with an independent checker: clients and faults against a real server process.

The checker knows the engine only by the wire: it shares no code with kcore, keeps its own record of what was sent and
acknowledged, and has its own codec. `run` has the checks, `faults` what happens to the server.
"""
