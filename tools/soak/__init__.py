"""A soak test with an independent checker: clients and faults against a real server process.

The checker uses only the wire protocol: it shares no code with kcore, keeps its own record of sent and acknowledged
requests, and has its own codec. `run` contains the checks, `faults` the faults.
"""
