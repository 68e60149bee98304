"""Models in plain Python of what is compiled: tests compare both."""
