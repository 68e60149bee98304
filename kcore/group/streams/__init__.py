"""Streams groups (KIP-1071): the coordinator assigns the tasks of Kafka Streams applications.

A *topology* has subtopologies; a subtopology with n input partitions has the tasks 0 to n-1. A task is active in one
member, and may be a standby in other *processes*. A process is one state directory, which several members may share.
The epochs are the same as in consumer groups: group epoch, assignment epoch, member epoch.

`heartbeat` decides a heartbeat with `member_update`. `topology` and `configure` derive the tasks and the internal
topics, which `internal_topics` creates. `target` computes target assignments, `reconcile` moves a member towards its
target with the table in `states`, `leave` removes members. `replay` is the only code that changes durable state.
"""
