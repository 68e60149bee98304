"""The synchronous classes, made from `_async` by tools/generate_sync.py; `backend` is written by hand."""
