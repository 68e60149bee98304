"""Reference implementations in Python of compiled modules. Tests compare both."""
