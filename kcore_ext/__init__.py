"""Compiled parts of kcore: `kcore_ext/X` belongs to `kcore/X`; `kcore_ext/util` has code that several packages use."""
