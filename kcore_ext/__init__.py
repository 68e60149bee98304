"""Compiled parts of kcore: `kcore_ext/X` holds those of `kcore/X`, and `util` what several of them share."""
