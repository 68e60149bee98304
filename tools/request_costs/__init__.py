"""The costs of the most expensive requests of at most 1 MB for each served API, from the request's bytes to the
response's bytes.
"""
