"""The client side of group membership, without I/O."""
