"""Drivers of an engine: for an event loop and for plain threads.

The engine decides; a driver reads clocks, calls `commit`, and lets timers fire. There is one for an event loop and
one for plain threads; with a manual clock the same drivers make the simulator.
"""
