"""Worst requests of at most 1 MB: what each served API costs, from the bytes of a request to those of its response."""
