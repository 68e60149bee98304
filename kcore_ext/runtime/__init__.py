"""Compiled parts of the runtime: shards, outcomes of decisions, clocks, timers, the purgatory."""
