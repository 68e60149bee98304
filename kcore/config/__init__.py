"""Settings of a node: declarations, values and properties files."""
