"""Access control lists and the authorizer that applies them."""
