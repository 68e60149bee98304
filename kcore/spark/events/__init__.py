"""Event logs as rows: sources, record batches, Arrow and the Spark data source."""
