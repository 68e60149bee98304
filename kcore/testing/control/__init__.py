"""The controls of a test broker over HTTP, for tests in other languages: `kcore serve --control HOST:PORT`.

`operations` has the table of requests, from which `openapi` describes them and `server` serves them.
"""
