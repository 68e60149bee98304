"""Models in Python of compiled modules: tests compare both."""
