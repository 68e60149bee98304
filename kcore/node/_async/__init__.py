"""The asynchronous classes, written by hand. `kcore.node._sync` is made from them by tools/generate_sync.py."""
