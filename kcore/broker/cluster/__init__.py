"""One node of a cluster whose nodes share a store: membership, leadership of partitions, and the controller."""
