"""Exports, reads, decodes, audits and rebuilds coordinator event logs, with or without Spark.

Importing this package is cheap and needs neither Spark nor the compiled extension, because executors import only the
modules that they run.

    sources, segments, batches   readers of raw segment files, data folders, exports and running servers
    export, manifest             exports as Parquet or JSON lines, and the manifest that proves them complete
    decode                       records as typed columns, over Arrow
    state, tables                one coordinator partition, replayed by the engine's own code; its state as rows
    data_folder                  a state as a data folder that a server can start from
    audit, timeline              checks of log invariants; timelines of groups and transactions
    restore_plan, restore_apply  plans and applies the restore of earlier committed offsets
    frames, jobs                 functions from DataFrame to DataFrame, and the jobs built from them
    datasource                   the data source spark.read.format("kcore")
    pure_batch, pure_record      pure-Python versions of compiled modules, for executors without a build
"""
