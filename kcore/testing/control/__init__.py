"""The controls of a test broker over HTTP, for tests in other languages: `kcore serve --control HOST:PORT`.

`operations` contains the table of requests. `openapi` describes these requests, and `server` serves them.
"""
