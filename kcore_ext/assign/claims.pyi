"""Readers of claims, which are the partitions that members report as owned. Only compiled code uses this module."""
