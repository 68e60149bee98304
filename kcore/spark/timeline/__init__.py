"""The timeline of coordinators: events with their times and causes, from their logs.

    log rows --history--> events --frames (Spark SQL)--> tables --report--> one HTML file

`history` reads a partition once in offset order and yields typed events; it keeps only the live state. All counts, sums
and comparisons over time are SQL over these events.
"""
