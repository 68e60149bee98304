"""Growing lists, an index, sorting and memory allocation for the assignors. Only compiled code uses this module."""
