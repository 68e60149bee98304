"""A soak test with an independent checker: clients and faults against a real server process.

The checker shares no code with kcore: it has its own codec, and its own record of sent and acknowledged requests. `run`
contains the checks, `faults` the faults.
"""
