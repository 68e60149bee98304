"""Registers `spark.read.format("kcore")` in every session: Spark imports modules with this name prefix by itself."""

from kcore.spark.events.datasource import KcoreDataSource

__all__ = ["DefaultSource", "KcoreDataSource"]

DefaultSource = KcoreDataSource
"""The name by which Spark finds the data source in this module."""
