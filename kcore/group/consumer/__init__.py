"""Consumer groups (KIP-848): one heartbeat instead of joins and syncs, assignments made here, members that move alone.

Three epochs tell how far a group is. The *group epoch* is one more whenever something changes that an assignment
depends on. The *assignment epoch* is the group epoch for which the present target assignment was computed. Each
member's *member epoch* follows when what it has agrees with its target: it first gives up what is not its own any
more, and is given what others have let go of. Nobody waits for anybody else, and no partition has two owners.

`heartbeat` decides a heartbeat; `reconcile` is the member's way to its target, as a table in `states`; `target` makes
targets; `regex` resolves patterns; `leave` removes members; `replay` is the only code that changes what is durable.
"""
