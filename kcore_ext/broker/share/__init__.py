"""Compiled delivery state of share partitions (KIP-932)."""
