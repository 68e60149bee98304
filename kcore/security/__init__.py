"""Who a peer is: SASL mechanisms and the exchange around them, TLS settings, principals.

Mechanisms and the exchange are state machines: tokens in, tokens out. They know no socket, no event loop and no clock;
randomness and time are arguments. What a principal may do is `kcore.broker.acl.entries`.
"""
