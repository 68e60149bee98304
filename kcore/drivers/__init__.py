"""Drivers of an engine: one for an asyncio event loop, one for threads.

The engine processes requests. A driver reads the clock, calls `commit` and fires timers. The simulator uses the same
drivers with a manual clock.
"""
