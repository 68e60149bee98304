"""Every setting of a node, in one table: Kafka's name, type, default, bounds, meaning.

An attribute's name is Kafka's with underscores for dots: `group.max.size` is `config.group_max_size`. Names that
begin with `kcore.` are kcore's own. If a default differs from Kafka's, the line has the reason.
"""

from __future__ import annotations

from kcore.config.connections import overrides_fault
from kcore.config.security import SecuritySettings
from kcore.config.setting import INT_MAX, SettingType, declared, setting
from kcore.config.values import ConfigValues

LONG = SettingType.LONG


class Config(ConfigValues):
    """The settings of one node. Attributes are typed; the constructor refuses unknown or invalid settings."""

    # ---- the node
    node_id: int = setting(1, "This node's id, as clients see it.", low=0)
    broker_rack: str | None = setting(None, "The rack of this node, for clients and assignors that are aware of racks.")
    cluster_id: str = setting("", "The cluster's id; empty: one is created for a new data folder and stored in it.")
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses on which the server listens, NAME://HOST:PORT each; port 0 takes a free one. Kafka's default is "
        "all addresses; kcore, which is often embedded in tests, listens only on the loopback address by default.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        "The addresses that clients get, NAME://HOST:PORT each; empty: the addresses of `listeners`, with an address "
        "of this machine in place of 0.0.0.0, :: and no host.",
    )

    # ---- the coordinator: classic groups
    group_min_session_timeout_ms: int = setting(6_000, "The minimum session timeout of a classic member.")
    group_max_session_timeout_ms: int = setting(1_800_000, "The maximum session timeout of a classic member.")
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "Time for which an empty group waits for more members before its first rebalance."
    )
    group_max_size: int = setting(INT_MAX, "Maximum number of members of a classic group.", low=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        "The served kinds of groups. `share` has no effect: share groups are served if the feature share.version is "
        "on. The default is Kafka's.",
        choices=("classic", "consumer", "share", "streams"),
    )

    # ---- the coordinator: groups of the new protocol (KIP-848)
    group_consumer_session_timeout_ms: int = setting(45_000, "Session timeout of consumer groups.", low=1)
    group_consumer_min_session_timeout_ms: int = setting(45_000, "Minimum of consumer.session.timeout.ms.", low=1)
    group_consumer_max_session_timeout_ms: int = setting(60_000, "Maximum of consumer.session.timeout.ms.", low=1)
    group_consumer_heartbeat_interval_ms: int = setting(5_000, "Heartbeat interval of consumer groups.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = setting(5_000, "Minimum of consumer.heartbeat.interval.ms.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = setting(15_000, "Maximum of consumer.heartbeat.interval.ms.", low=1)
    group_consumer_max_size: int = setting(INT_MAX, "Maximum number of members of a consumer group.", low=1)
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"), "Server-side assignors, by name or package.module:Class; the first is the default."
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "The allowed conversions of a group with members between the classic and the new protocol.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        ignore_case=True,
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "Interval at which subscribed patterns are matched with the topics again.", low=10_000
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000, "Minimum time between two target assignments of a consumer group.", low=0, dynamic=True
    )
    group_consumer_min_assignment_interval_ms: int = setting(0, "Minimum of consumer.assignment.interval.ms.", low=0)
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "Maximum of consumer.assignment.interval.ms.", low=0
    )

    # ---- share groups
    group_share_session_timeout_ms: int = setting(45_000, "Session timeout of share groups.", low=1)
    group_share_min_session_timeout_ms: int = setting(45_000, "Minimum of share.session.timeout.ms.", low=1)
    group_share_max_session_timeout_ms: int = setting(60_000, "Maximum of share.session.timeout.ms.", low=1)
    group_share_heartbeat_interval_ms: int = setting(5_000, "Heartbeat interval of share groups.", low=1)
    group_share_min_heartbeat_interval_ms: int = setting(5_000, "Minimum of share.heartbeat.interval.ms.", low=1)
    group_share_max_heartbeat_interval_ms: int = setting(15_000, "Maximum of share.heartbeat.interval.ms.", low=1)
    group_share_max_size: int = setting(200, "Maximum number of members of a share group.", low=1, high=1_000)
    group_share_max_share_sessions: int = setting(2_000, "Maximum number of share sessions of the node.", low=1)
    group_share_assignors: tuple[str, ...] = setting(("simple",), "The assignor of share groups; exactly one.")
    group_share_initialize_retry_interval_ms: int = setting(
        30_000, "Time after which an unconfirmed initialization of a share partition is requested again.", low=1
    )
    group_share_assignment_interval_ms: int = setting(
        1_000, "Minimum time between two target assignments.", low=0, dynamic=True
    )
    group_share_min_assignment_interval_ms: int = setting(0, "Minimum of share.assignment.interval.ms.", low=0)
    group_share_max_assignment_interval_ms: int = setting(15_000, "Maximum of share.assignment.interval.ms.", low=0)
    group_share_delivery_count_limit: int = setting(5, "Maximum number of deliveries of a record.", low=2, high=10)
    group_share_min_delivery_count_limit: int = setting(2, "Minimum of share.delivery.count.limit.", low=2)
    group_share_max_delivery_count_limit: int = setting(10, "Maximum of share.delivery.count.limit.", high=25)
    group_share_record_lock_duration_ms: int = setting(
        30_000, "Time for which a delivered record is locked.", low=1_000, high=3_600_000
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000, "Minimum of share.record.lock.duration.ms.", low=1_000
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000, "Maximum of share.record.lock.duration.ms.", high=3_600_000
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "Maximum number of locked records of a partition.", low=100, high=10_000
    )
    group_share_min_partition_max_record_locks: int = setting(
        100, "Minimum of share.partition.max.record.locks.", low=100
    )
    group_share_max_partition_max_record_locks: int = setting(
        4_000, "Maximum of share.partition.max.record.locks.", high=10_000
    )

    # ---- streams groups
    group_streams_session_timeout_ms: int = setting(45_000, "Session timeout of streams groups.", low=1)
    group_streams_min_session_timeout_ms: int = setting(45_000, "Minimum of streams.session.timeout.ms.", low=1)
    group_streams_max_session_timeout_ms: int = setting(60_000, "Maximum of streams.session.timeout.ms.", low=1)
    group_streams_heartbeat_interval_ms: int = setting(5_000, "Heartbeat interval of streams groups.", low=1)
    group_streams_min_heartbeat_interval_ms: int = setting(5_000, "Minimum of streams.heartbeat.interval.ms.", low=1)
    group_streams_max_heartbeat_interval_ms: int = setting(15_000, "Maximum of streams.heartbeat.interval.ms.", low=1)
    group_streams_max_size: int = setting(INT_MAX, "Maximum number of members of a streams group.", low=1)
    group_streams_num_standby_replicas: int = setting(0, "Standby copies of each stateful task.", low=0)
    group_streams_max_standby_replicas: int = setting(2, "Maximum of streams.num.standby.replicas.", low=0)
    group_streams_assignment_interval_ms: int = setting(
        1_000, "Minimum time between two target assignments.", low=0, dynamic=True
    )
    group_streams_min_assignment_interval_ms: int = setting(0, "Minimum of streams.assignment.interval.ms.", low=0)
    group_streams_max_assignment_interval_ms: int = setting(15_000, "Maximum of streams.assignment.interval.ms.", low=0)
    group_streams_initial_rebalance_delay_ms: int = setting(
        3_000, "Time for which an empty streams group waits for more members.", low=0
    )
    kcore_streams_assignor: str = setting(
        "sticky",
        "The assignor of tasks: sticky, or package.module:Class for a class of your own.",
    )

    # ---- offsets
    offsets_topic_num_partitions: int = setting(50, "Partitions of __consumer_offsets; fixed once created.", low=1)
    offsets_topic_replication_factor: int = setting(
        1, "Replicas of __consumer_offsets. Kafka's default is 3; one node has one.", low=1, kind=SettingType.SHORT
    )
    offsets_topic_segment_bytes: int = setting(104_857_600, "segment.bytes of __consumer_offsets.", low=1)
    offsets_topic_compression_codec: int = setting(
        0, "Codec of the coordinator's batches: 0 none … 4 zstd.", low=0, high=4
    )
    offset_metadata_max_bytes: int = setting(
        4_096, "Maximum length of a committed offset's metadata, in UTF-16 code units."
    )
    offsets_retention_minutes: int = setting(10_080, "Retention time of the offsets of an inactive group.", low=1)
    offsets_retention_check_interval_ms: int = setting(
        600_000, "Interval between two searches for expired offsets.", low=1, kind=LONG
    )

    # ---- transactions
    transaction_state_log_num_partitions: int = setting(
        50, "Partitions of __transaction_state; fixed once created.", low=1
    )
    transaction_state_log_replication_factor: int = setting(
        1, "Replicas of __transaction_state. Kafka's default is 3; one node has one.", low=1, kind=SettingType.SHORT
    )
    transaction_state_log_segment_bytes: int = setting(104_857_600, "segment.bytes of __transaction_state.", low=1)
    transaction_state_log_min_isr: int = setting(1, "min.insync.replicas of __transaction_state (Kafka: 2).", low=1)
    transaction_max_timeout_ms: int = setting(900_000, "Maximum transaction timeout of a producer.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, "Interval between two searches for transactions that have timed out.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, "Interval between two searches for unused transactional ids.", low=1
    )
    transactional_id_expiration_ms: int = setting(604_800_000, "Retention time of an unused transactional id.", low=1)
    transaction_partition_verification_enable: bool = setting(
        True,
        "Whether a partition verifies a transaction with the coordinator before it appends its first batch.",
        dynamic=True,
    )
    producer_id_expiration_ms: int = setting(
        86_400_000, "Time for which a partition keeps the state of an idle producer.", low=1, dynamic=True
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, "Interval between two searches for idle producers.", low=1
    )

    # ---- share state
    share_coordinator_state_topic_num_partitions: int = setting(50, "Partitions of __share_group_state.", low=1)
    share_coordinator_state_topic_replication_factor: int = setting(
        1, "Replicas of __share_group_state. Kafka's default is 3; one node has one.", low=1, kind=SettingType.SHORT
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        104_857_600, "segment.bytes of __share_group_state.", low=1
    )
    share_coordinator_state_topic_min_isr: int = setting(
        1, "min.insync.replicas of __share_group_state (Kafka: 2).", low=1
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500, "Updates of a share state between two snapshots.", low=0, high=500
    )

    # ---- topics
    auto_create_topics_enable: bool = setting(True, "Whether a Metadata request may create a missing topic.")
    delete_topic_enable: bool = setting(True, "Whether topics can be deleted.")
    num_partitions: int = setting(1, "Default number of partitions of a new topic.", low=1)
    default_replication_factor: int = setting(1, "Default number of replicas of a new topic.", low=1)
    message_max_bytes: int = setting(1_048_588, "Maximum size of a batch.", low=0, dynamic=True)
    compression_type: str = setting(
        "producer",
        "The compression of stored batches.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )
    compression_gzip_level: int = setting(-1, "gzip's level: 1 to 9, or -1.", dynamic=True)
    compression_lz4_level: int = setting(9, "lz4's level.", low=1, high=17, dynamic=True)
    compression_zstd_level: int = setting(3, "zstd's level.", low=-131_072, high=22, dynamic=True)
    min_insync_replicas: int = setting(
        1, "Replicas that must have a batch before the response to acks=all.", low=1, dynamic=True
    )
    unclean_leader_election_enable: bool = setting(
        False, "Kept for Kafka's tools: a partition has one replica.", dynamic=True
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        ("delete",), "The treatment of old records.", choices=("compact", "delete"), dynamic=True
    )
    log_segment_bytes: int = setting(1_073_741_824, "Size of a segment.", low=1_048_576, dynamic=True)
    log_segment_delete_delay_ms: int = setting(
        60_000, "Kept for Kafka's tools: LMDB holds the log.", low=0, kind=LONG, dynamic=True
    )
    log_preallocate: bool = setting(False, "Kept for Kafka's tools: LMDB holds the log.", dynamic=True)
    log_roll_ms: int | None = setting(
        None, "Maximum time for which a segment is written; unset: log.roll.hours.", kind=LONG, dynamic=True
    )
    log_roll_hours: int = setting(168, "Maximum time for which a segment is written, in hours.", low=1)
    log_retention_ms: int | None = setting(
        None,
        "Retention time of records; -1: no limit; unset: log.retention.minutes or hours.",
        kind=LONG,
        dynamic=True,
    )
    log_retention_minutes: int | None = setting(None, "Retention time of records in minutes.", kind=SettingType.INT)
    log_retention_hours: int = setting(168, "Retention time of records in hours.")
    log_retention_bytes: int = setting(-1, "Retained bytes of a partition; -1: no limit.", kind=LONG, dynamic=True)
    log_retention_check_interval_ms: int = setting(
        300_000, "Interval between two searches for expired records.", low=1, kind=LONG
    )
    log_index_interval_bytes: int = setting(4_096, "Kept for Kafka's tools: LMDB holds the log.", low=0, dynamic=True)
    log_index_size_max_bytes: int = setting(
        10_485_760, "Kept for Kafka's tools: LMDB holds the log.", low=4, dynamic=True
    )
    log_flush_interval_messages: int = setting(
        2**63 - 1,
        "Kept for Kafka's tools: kcore.durability determines when data is flushed.",
        low=1,
        kind=LONG,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, "Retention time of tombstones in a compacted topic.", low=0, kind=LONG, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5, "Ratio of new data in a log at which it is compacted.", low=0, high=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, "Minimum time before a record is compacted.", low=0, kind=LONG, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        2**63 - 1, "Maximum time before a record is compacted.", low=1, kind=LONG, dynamic=True
    )
    log_cleaner_backoff_ms: int = setting(
        15_000, "Interval between two searches for logs to compact.", low=0, kind=LONG, dynamic=True
    )
    log_message_timestamp_type: str = setting(
        "CreateTime",
        "The source of timestamps of records: the producer's clock or the server's.",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        2**63 - 1, "Maximum age of a record's timestamp.", low=0, kind=LONG, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000, "Maximum time by which a record's timestamp may be in the future.", low=0, kind=LONG, dynamic=True
    )
    log_local_retention_ms: int = setting(
        -2, "Kept for Kafka's tools: there are no tiers.", low=-2, kind=LONG, dynamic=True
    )
    log_local_retention_bytes: int = setting(
        -2, "Kept for Kafka's tools: there are no tiers.", low=-2, kind=LONG, dynamic=True
    )

    # ---- fetch
    fetch_max_bytes: int = setting(57_671_680, "Maximum size of the records in one Fetch response.", low=1_024)
    max_incremental_fetch_session_cache_slots: int = setting(1_000, "Maximum number of fetch sessions.", low=0)
    kcore_max_fetch_session_partitions: int = setting(
        500_000,
        "Maximum number of partitions of all fetch sessions together. A client whose session would exceed it gets no "
        "session and names its partitions in each request, as if max.incremental.fetch.session.cache.slots were used "
        "up. One session has at most kcore.max.request.elements partitions.",
        low=0,
    )
    max_request_partition_size_limit: int = setting(
        2_000, "Maximum number of partitions in one DescribeTopicPartitions response.", low=1
    )

    # ---- connections
    socket_request_max_bytes: int = setting(
        104_857_600,
        "Maximum size of a request. Requests other than Produce have the lower limit kcore.max.request.bytes too.",
        low=1,
    )
    connections_max_idle_ms: int = setting(
        600_000,
        "Time after which a connection is closed that is idle, or whose client has not authenticated; -1: never.",
        kind=LONG,
    )
    max_connections: int = setting(
        INT_MAX,
        "Maximum number of open connections, TLS handshakes included; further clients wait. A listener may have "
        "its own limit.",
        low=0,
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        INT_MAX, "Maximum number of connections of one address; further ones are closed.", low=0, dynamic=True
    )
    max_connections_per_ip_overrides: str = setting(
        "",
        "Maximum number of connections of single addresses in place of max.connections.per.ip, ADDRESS:COUNT each, "
        "separated by commas.",
        dynamic=True,
        check=overrides_fault,
    )
    max_connection_creation_rate: int = setting(
        INT_MAX,
        "Maximum number of new connections per second; further clients wait. A listener may have its own limit.",
        low=0,
        dynamic=True,
    )
    queued_max_request_bytes: int = setting(
        -1, "Bytes of queued requests at which the whole server stops reading; -1: no limit.", kind=LONG
    )

    # ---- kcore's own
    kcore_data_dir: str = setting("", "The data folder; `--data` sets it.")
    kcore_durability: str = setting(
        "fsync",
        "The durability of a record before its response is sent. fsync: it is on the device. os: the operating system "
        "has it, so it survives the end of the process, but not a power failure. memory: it is never written. Without "
        "a data folder `kcore serve` keeps data in memory. It logs a warning unless this is `memory`.",
        choices=("fsync", "os", "memory"),
    )
    kcore_map_size: int = setting(
        268_435_456, "Initial address space for the log's file; it grows by itself.", low=1_048_576, kind=LONG
    )
    kcore_snapshot_min_bytes: int = setting(
        1_048_576,
        "Minimum size of new data at which a coordinator's partition is compacted. The compacted log is the snapshot "
        "that a restart loads.",
        low=0,
        kind=LONG,
    )
    kcore_snapshot_live_ratio: float = setting(
        1.0,
        "Minimum size of new data, as a multiple of the size after the last compaction, at which a coordinator's "
        "partition is compacted; kcore.snapshot.min.bytes must be reached too.",
        low=0,
    )
    kcore_connection_buffer_bytes: int = setting(
        1_048_576, "Bytes of unread responses at which a connection's requests wait.", low=1_024
    )
    kcore_max_request_bytes: int = setting(
        8_388_608,
        "Maximum size of a request other than Produce. A client that sends more is disconnected once so many bytes of "
        "the request have arrived. The limit is at least twice message.max.bytes, so that the largest records of a "
        "group fit.",
        low=65_536,
    )
    kcore_max_request_memory_bytes: int = setting(
        536_870_912,
        "Maximum bytes of received requests that are unfinished or wait, over all connections. Beyond it, kcore takes "
        "the client address that holds the most of these bytes, and closes its connection that has held unserved bytes "
        "for the longest time. It should be larger than socket.request.max.bytes; -1: no limit.",
        low=-1,
        kind=LONG,
    )
    kcore_max_group_metadata_bytes: int = setting(
        268_435_456,
        "Maximum bytes of metadata of the members of all classic groups together. One group may have an eighth of it. "
        "A join that would exceed it gets GROUP_MAX_SIZE_REACHED, unless its group has less than 64 KiB; -1: no limit. "
        "Each protocol of a member beyond the fourth counts 256 bytes more.",
        low=-1,
        kind=LONG,
    )
    kcore_max_request_elements: int = setting(
        25_000,
        "Maximum number of array elements in a request, those of nested arrays included: topics, partitions, groups, "
        "members. It bounds the time for which one request can block the event loop. A client that sends more is "
        "disconnected.",
        low=1_000,
    )
    kcore_max_response_memory_bytes: int = setting(
        268_435_456,
        "Bytes of unread responses of all connections together. A Fetch response has at most a quarter of the memory "
        "that remains below this limit, but always one batch. Any other response of more than 1 MiB that does not fit "
        "closes its connection. Above the limit, connections with unread responses are not served; -1: no limit.",
        low=-1,
        kind=LONG,
    )
    kcore_max_response_bytes: int = setting(
        50_331_648,
        "Maximum size of a response in bytes. A longer one is replaced by POLICY_VIOLATION; if the API has no field "
        "for an error, the connection is closed. A Fetch response may be longer by one record batch.",
        low=65_536,
        high=2_147_483_647,
    )
    kcore_response_stall_ms: int = setting(
        30_000,
        "Time without any read of its responses after which a connection is closed, while more than half of "
        "kcore.max.response.memory.bytes is used.",
        low=1,
        kind=LONG,
    )

    kcore_http_listen: str = setting(
        "", "HOST:PORT for the console, /metrics, /healthz and /readyz; port 0 takes a free one; empty: not served."
    )

    kcore_metrics_max_partitions: int = setting(
        1_000,
        "Number of partitions, and number of topics, that have metrics of their own in /metrics; kcore_metrics_omitted "
        "counts the others.",
        low=0,
    )


Config.SETTINGS = declared(Config) | declared(SecuritySettings)
