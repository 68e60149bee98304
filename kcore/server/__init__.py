"""The TCP server: listeners, connections and frames. The engine interprets the requests."""
