"""Drivers of an engine: one for an asyncio event loop, one for threads.

The engine decides requests. A driver reads the clock, calls `commit` and fires timers. With a manual clock the same
drivers make the simulator.
"""
