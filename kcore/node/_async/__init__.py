"""The asynchronous classes, written by hand. tools/generate_sync.py generates `kcore.node._sync` from them."""
