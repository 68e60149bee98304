"""Memory allocation of the assignors, with growing lists, an index and sorts. Only compiled code uses this module."""
