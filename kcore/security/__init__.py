"""Authentication: SASL mechanisms and exchanges, TLS settings, and principals.

Mechanisms and exchanges are state machines that map tokens to tokens. They use no socket, event loop or clock;
randomness and time are arguments. `kcore.broker.acl.entries` authorizes principals.
"""
