"""Claims: the partitions that members report as owned. Only compiled code uses this module."""
