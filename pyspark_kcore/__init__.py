"""What Spark imports by itself, because of its name: it makes `spark.read.format("kcore")` known to every session."""

from kcore.spark.events.datasource import KcoreDataSource

__all__ = ["DefaultSource", "KcoreDataSource"]

DefaultSource = KcoreDataSource
"""The name by which Spark finds a data source in a module that it found."""
