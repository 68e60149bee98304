"""Checkers of the simulation. Only `replay`, `log format` and `audit` run code of kcore, on a copy of the log."""
