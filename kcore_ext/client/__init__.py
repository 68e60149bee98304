"""Hot code of the client: records of fetch responses, batches of a producer, partitions of keys."""
