"""The audit: checks invariants over the whole history of logs, within each partition and then across partitions.

`partition.examine` audits one log and needs no Spark. `across.compare` compares the observations of one producer in
several logs. `frames.audit_logs` does both over a DataFrame. `kinds.KINDS` lists the kinds of findings. `history`
excludes gaps that compaction explains.
"""
