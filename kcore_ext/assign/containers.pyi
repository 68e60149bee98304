"""Memory of the assignors. Only compiled code uses this module."""
