"""The timeline of coordinators: what happened, when and why, out of their logs.

    log rows --history--> facts --frames (Spark SQL)--> tables --report--> one HTML file

`history` walks a partition once, in the order of its offsets, and says what happened as typed facts; it keeps what is
alive and no more. Everything that counts, sums or compares over time is SQL over these facts.
"""
