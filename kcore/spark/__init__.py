"""Coordinator logs become answers: export, read, decode and rebuild event logs, with Spark or without.

Importing this package costs nothing and needs neither Spark nor the compiled extension: executors import what they run.

    sources, segments, batches   where events come from: raw segment files, data folders, exports, running servers
    export, manifest             events as Parquet or JSON lines, and the proof that they are whole
    decode                       records as typed columns, over Arrow
    state, tables                one coordinator partition, replayed by the engine's own code; its state as rows
    data_folder                  a state as a folder that a server starts from
    audit, timeline              what must not be in logs; what happened, when and why
    restore_plan, restore_apply  committed offsets of the past: what is to be done, and the doing
    frames, jobs                 functions DataFrame -> DataFrame, and the jobs made of them
    datasource                   spark.read.format("kcore")
    pure_batch, pure_record      twins of the extension, for executors without a build
"""
