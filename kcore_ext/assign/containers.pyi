"""Memory of the assignors. Nothing here is called from Python."""
