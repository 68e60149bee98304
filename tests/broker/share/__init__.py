"""Tests of share partitions, share sessions, ShareFetch and ShareAcknowledge."""
