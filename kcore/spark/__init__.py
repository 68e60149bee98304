"""Coordinator logs become answers: export, read, decode and rebuild event logs, with Spark or without.

Importing this package costs nothing and needs neither Spark nor the compiled extension: executors import what they run.

    segments, folders, servers   where events come from: raw segment files, data folders, running servers
    export, manifest             events as Parquet or JSON lines, and the proof that they are whole
    decode                       records as typed columns, over Arrow
    state, tables                one coordinator partition, replayed by the engine's own code; its state as rows
    frames, jobs                 functions DataFrame -> DataFrame, and the jobs made of them
    datasource                   spark.read.format("kcore")
"""
