"""The simulation of clusters: several nodes over one store, with clients that find the leader of each partition."""
