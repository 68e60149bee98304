"""The simulated clients: kcore's client state machines with drivers in virtual time, and a client that violates
rules.
"""
