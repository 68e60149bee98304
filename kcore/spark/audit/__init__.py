"""The audit: invariants over the whole history of logs, partition by partition and then across them.

`partition.examine` looks at one log and needs no Spark. `across.compare` looks at what several logs say of a producer.
`frames.audit_logs` does both over a DataFrame. `kinds.KINDS` says what there is to find, `history` what is no finding
because compaction took away what would explain it.
"""
