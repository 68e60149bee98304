"""Every setting of a node, in one table: Kafka's name, type, default, bounds, meaning.

An attribute's name is Kafka's with underscores for dots: `group.max.size` is `config.group_max_size`. Names that begin
with `kcore.` are kcore's own. If a default differs from Kafka's, the setting's line in the table has the reason.
"""

from __future__ import annotations

from kcore.config.connections import overrides_fault
from kcore.config.paths import path_fault
from kcore.config.security import SecuritySettings
from kcore.config.setting import INT_MAX, SettingType, declared, setting
from kcore.config.values import ConfigValues

LONG = SettingType.LONG


def is_gzip_level(value: int) -> bool:
    """Returns True for a compression level of gzip: 1 to 9, or -1 for gzip's default."""
    return value == -1 or 1 <= value <= 9


def _gzip_fault(value: int) -> str | None:
    return None if is_gzip_level(value) else "is neither -1 nor 1 to 9"


def _retention_fault(value: int) -> str | None:
    return None if value else "is neither negative (unlimited) nor positive"


class Config(ConfigValues):
    """The settings of one node. Attributes are typed; the constructor refuses unknown or invalid settings."""

    # ---- the node
    node_id: int = setting(1, "This node's id, as clients see it.", low=0)
    broker_rack: str | None = setting(
        None, "The rack of this node, for clients and assignors that take racks into account."
    )
    cluster_id: str = setting(
        "", "The cluster's id; empty: kcore creates an id for a new data folder and stores it there."
    )
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses on which the server listens, each as NAME://HOST:PORT; port 0 selects a free port. Kafka "
        "listens on all addresses by default. kcore is often embedded in tests, so its default is the loopback "
        "address.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        "The addresses that clients get, each as NAME://HOST:PORT; empty: the addresses of `listeners`, with an "
        "address of this machine in place of 0.0.0.0, :: and an empty host. An entry of this setting must not have "
        "the host 0.0.0.0 or ::. An entry with an empty host advertises an address of this machine.",
    )

    # ---- the coordinator: classic groups
    group_min_session_timeout_ms: int = setting(
        6_000, "Minimum session timeout that a member of a classic group may request."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "Maximum session timeout that a member of a classic group may request."
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "Time for which an empty group waits for more members before its first rebalance."
    )
    group_max_size: int = setting(INT_MAX, "Maximum number of members of a classic group.", low=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        "The kinds of groups that kcore serves. `share` has no effect: share groups are served if the feature "
        "share.version is on. The default is Kafka's.",
        choices=("classic", "consumer", "share", "streams"),
    )

    # ---- the coordinator: groups of the new protocol (KIP-848)
    group_consumer_session_timeout_ms: int = setting(45_000, "Session timeout of consumer groups.", low=1)
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, "Minimum of the group setting consumer.session.timeout.ms.", low=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, "Maximum of the group setting consumer.session.timeout.ms.", low=1
    )
    group_consumer_heartbeat_interval_ms: int = setting(5_000, "Heartbeat interval of consumer groups.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5_000, "Minimum of the group setting consumer.heartbeat.interval.ms.", low=1
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "Maximum of the group setting consumer.heartbeat.interval.ms.", low=1
    )
    group_consumer_max_size: int = setting(INT_MAX, "Maximum number of members of a consumer group.", low=1)
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"), "Server-side assignors, by name or package.module:Class; the first is the default."
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "The directions in which a group with members may change its protocol. upgrade: from classic to consumer. "
        "downgrade: from consumer to classic.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        ignore_case=True,
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "Interval at which the coordinator matches subscribed patterns with the topics again.", low=10_000
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000, "Minimum time between two target assignments of a consumer group.", low=0, dynamic=True
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0, "Minimum of the group setting consumer.assignment.interval.ms.", low=0
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "Maximum of the group setting consumer.assignment.interval.ms.", low=0
    )

    # ---- share groups
    group_share_session_timeout_ms: int = setting(45_000, "Session timeout of share groups.", low=1)
    group_share_min_session_timeout_ms: int = setting(
        45_000, "Minimum of the group setting share.session.timeout.ms.", low=1
    )
    group_share_max_session_timeout_ms: int = setting(
        60_000, "Maximum of the group setting share.session.timeout.ms.", low=1
    )
    group_share_heartbeat_interval_ms: int = setting(5_000, "Heartbeat interval of share groups.", low=1)
    group_share_min_heartbeat_interval_ms: int = setting(
        5_000, "Minimum of the group setting share.heartbeat.interval.ms.", low=1
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        15_000, "Maximum of the group setting share.heartbeat.interval.ms.", low=1
    )
    group_share_max_size: int = setting(200, "Maximum number of members of a share group.", low=1, high=1_000)
    group_share_max_share_sessions: int = setting(2_000, "Maximum number of share sessions of the node.", low=1)
    group_share_assignors: tuple[str, ...] = setting(("simple",), "The assignor of share groups; exactly one.")
    group_share_initialize_retry_interval_ms: int = setting(
        30_000,
        "Time after which the group requests the initialization of a share partition again if it was not confirmed.",
        low=1,
    )
    group_share_assignment_interval_ms: int = setting(
        1_000, "Minimum time between two target assignments of a share group.", low=0, dynamic=True
    )
    group_share_min_assignment_interval_ms: int = setting(
        0, "Minimum of the group setting share.assignment.interval.ms.", low=0
    )
    group_share_max_assignment_interval_ms: int = setting(
        15_000, "Maximum of the group setting share.assignment.interval.ms.", low=0
    )
    group_share_delivery_count_limit: int = setting(
        5, "Maximum number of deliveries of a record to a share group.", low=2, high=10
    )
    group_share_min_delivery_count_limit: int = setting(
        2, "Minimum of the group setting share.delivery.count.limit.", low=2
    )
    group_share_max_delivery_count_limit: int = setting(
        10, "Maximum of the group setting share.delivery.count.limit.", high=25
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000, "Time for which a delivered record is locked.", low=1_000, high=3_600_000
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000, "Minimum of the group setting share.record.lock.duration.ms.", low=1_000
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000, "Maximum of the group setting share.record.lock.duration.ms.", high=3_600_000
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "Maximum number of locked records of a share partition.", low=100, high=10_000
    )
    group_share_min_partition_max_record_locks: int = setting(
        100, "Minimum of the group setting share.partition.max.record.locks.", low=100
    )
    group_share_max_partition_max_record_locks: int = setting(
        4_000, "Maximum of the group setting share.partition.max.record.locks.", high=10_000
    )

    # ---- streams groups
    group_streams_session_timeout_ms: int = setting(45_000, "Session timeout of streams groups.", low=1)
    group_streams_min_session_timeout_ms: int = setting(
        45_000, "Minimum of the group setting streams.session.timeout.ms.", low=1
    )
    group_streams_max_session_timeout_ms: int = setting(
        60_000, "Maximum of the group setting streams.session.timeout.ms.", low=1
    )
    group_streams_heartbeat_interval_ms: int = setting(5_000, "Heartbeat interval of streams groups.", low=1)
    group_streams_min_heartbeat_interval_ms: int = setting(
        5_000, "Minimum of the group setting streams.heartbeat.interval.ms.", low=1
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        15_000, "Maximum of the group setting streams.heartbeat.interval.ms.", low=1
    )
    group_streams_max_size: int = setting(INT_MAX, "Maximum number of members of a streams group.", low=1)
    group_streams_num_standby_replicas: int = setting(
        0, "Number of standby tasks for each stateful task of a streams group.", low=0
    )
    group_streams_max_standby_replicas: int = setting(
        2, "Maximum of the group setting streams.num.standby.replicas.", low=0
    )
    group_streams_assignment_interval_ms: int = setting(
        1_000, "Minimum time between two target assignments of a streams group.", low=0, dynamic=True
    )
    group_streams_min_assignment_interval_ms: int = setting(
        0, "Minimum of the group setting streams.assignment.interval.ms.", low=0
    )
    group_streams_max_assignment_interval_ms: int = setting(
        15_000, "Maximum of the group setting streams.assignment.interval.ms.", low=0
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        3_000, "Time for which an empty streams group waits for more members.", low=0
    )
    kcore_streams_assignor: str = setting(
        "sticky",
        "The assignor of tasks of streams groups: sticky, or package.module:Class for a class of your own.",
    )

    # ---- offsets
    offsets_topic_num_partitions: int = setting(50, "Partitions of __consumer_offsets; fixed once created.", low=1)
    offsets_topic_replication_factor: int = setting(
        1,
        "Replicas of __consumer_offsets. Kafka's default is 3; a kcore partition has one.",
        low=1,
        kind=SettingType.SHORT,
    )
    offsets_topic_segment_bytes: int = setting(104_857_600, "segment.bytes of __consumer_offsets.", low=1)
    offsets_topic_compression_codec: int = setting(
        0, "Compression of the group coordinator's batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", low=0, high=4
    )
    offset_metadata_max_bytes: int = setting(
        4_096, "Maximum length of a committed offset's metadata, in UTF-16 code units."
    )
    offsets_retention_minutes: int = setting(
        10_080, "Retention time of the offsets of an inactive group, in minutes.", low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "Interval between two searches for expired offsets.", low=1, kind=LONG
    )

    # ---- transactions
    transaction_state_log_num_partitions: int = setting(
        50, "Partitions of __transaction_state; fixed once created.", low=1
    )
    transaction_state_log_replication_factor: int = setting(
        1,
        "Replicas of __transaction_state. Kafka's default is 3; a kcore partition has one.",
        low=1,
        kind=SettingType.SHORT,
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
        "If true, a partition verifies a transaction with its coordinator before it appends the first batch.",
        dynamic=True,
    )
    producer_id_expiration_ms: int = setting(
        86_400_000, "Time for which a partition keeps the state of an idle producer.", low=1, dynamic=True
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, "Interval between two searches for idle producers.", low=1
    )

    # ---- share state
    share_coordinator_state_topic_num_partitions: int = setting(
        50, "Partitions of __share_group_state; fixed once created.", low=1
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        1,
        "Replicas of __share_group_state. Kafka's default is 3; a kcore partition has one.",
        low=1,
        kind=SettingType.SHORT,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        104_857_600, "segment.bytes of __share_group_state.", low=1
    )
    share_coordinator_state_topic_min_isr: int = setting(
        1, "min.insync.replicas of __share_group_state (Kafka: 2).", low=1, kind=SettingType.SHORT
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500, "Maximum number of update records of a share partition's state between two snapshots.", low=0, high=500
    )

    # ---- topics
    auto_create_topics_enable: bool = setting(True, "If true, a Metadata request may create a missing topic.")
    delete_topic_enable: bool = setting(True, "If true, topics can be deleted.")
    num_partitions: int = setting(1, "Default number of partitions of a new topic.", low=1)
    default_replication_factor: int = setting(1, "Default number of replicas of a new topic.", low=1)
    message_max_bytes: int = setting(
        1_048_588, "Maximum size of a record batch that a producer appends.", low=0, dynamic=True
    )
    compression_type: str = setting(
        "producer",
        "The compression of stored batches; producer: as the producer compressed them.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )
    compression_gzip_level: int = setting(
        -1,
        "Compression level of gzip: 1 to 9, or -1 for gzip's default.",
        low=-1,
        high=9,
        dynamic=True,
        check=_gzip_fault,
    )
    compression_lz4_level: int = setting(9, "Compression level of lz4.", low=1, high=17, dynamic=True)
    compression_zstd_level: int = setting(3, "Compression level of zstd.", low=-131_072, high=22, dynamic=True)
    min_insync_replicas: int = setting(
        1,
        "Without effect on writes, because a partition has one replica. Kafka's tools can read and change it.",
        low=1,
        dynamic=True,
    )
    unclean_leader_election_enable: bool = setting(
        False, "Without effect: a partition has one replica. Kafka's tools can read and change it.", dynamic=True
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        "The treatment of old records. delete: retention deletes them. compact: the newest record of each key remains.",
        choices=("compact", "delete"),
        dynamic=True,
    )
    log_segment_bytes: int = setting(
        1_073_741_824,
        "Maximum size of a segment, and of a batch. kcore divides a log into segments only for retention and "
        "compaction.",
        low=1_048_576,
        dynamic=True,
    )
    log_segment_delete_delay_ms: int = setting(
        60_000,
        "Without effect: LMDB stores the log. Kafka's tools can read and change it.",
        low=0,
        kind=LONG,
        dynamic=True,
    )
    log_preallocate: bool = setting(
        False, "Without effect: LMDB stores the log. Kafka's tools can read and change it.", dynamic=True
    )
    log_roll_ms: int | None = setting(
        None,
        "Maximum time between the first and the last record of a segment; unset: log.roll.hours.",
        low=1,
        kind=LONG,
        dynamic=True,
    )
    log_roll_hours: int = setting(
        168, "Maximum time between the first and the last record of a segment, in hours.", low=1
    )
    log_retention_ms: int | None = setting(
        None,
        "Retention time of records; -1: no limit; unset: log.retention.minutes, or log.retention.hours if that is "
        "unset.",
        kind=LONG,
        dynamic=True,
        check=_retention_fault,
    )
    log_retention_minutes: int | None = setting(
        None, "Retention time of records in minutes, unless log.retention.ms is set.", kind=SettingType.INT
    )
    log_retention_hours: int = setting(
        168, "Retention time of records in hours, unless log.retention.ms or log.retention.minutes is set."
    )
    log_retention_bytes: int = setting(
        -1, "Bytes of a partition above which its oldest segments are deleted; -1: no limit.", kind=LONG, dynamic=True
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "Interval between two searches for expired records.", low=1, kind=LONG
    )
    log_index_interval_bytes: int = setting(
        4_096, "Without effect: LMDB stores the log. Kafka's tools can read and change it.", low=0, dynamic=True
    )
    log_index_size_max_bytes: int = setting(
        10_485_760, "Without effect: LMDB stores the log. Kafka's tools can read and change it.", low=4, dynamic=True
    )
    log_flush_interval_messages: int = setting(
        2**63 - 1,
        "Without effect: kcore.durability determines when data is flushed. Kafka's tools can read and change it.",
        low=1,
        kind=LONG,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, "Retention time of tombstones in a compacted topic.", low=0, kind=LONG, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5,
        "kcore compacts a log when the bytes since its last compaction are at least this share of all its bytes.",
        low=0,
        high=1,
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, "Minimum age of a record before compaction may remove it.", low=0, kind=LONG, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        2**63 - 1, "Maximum time for which a record waits for compaction.", low=1, kind=LONG, dynamic=True
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
        -2,
        "Without effect: kcore has no tiered storage. Kafka's tools can read and change it.",
        low=-2,
        kind=LONG,
        dynamic=True,
    )
    log_local_retention_bytes: int = setting(
        -2,
        "Without effect: kcore has no tiered storage. Kafka's tools can read and change it.",
        low=-2,
        kind=LONG,
        dynamic=True,
    )

    # ---- fetch
    fetch_max_bytes: int = setting(57_671_680, "Maximum size of the records in one Fetch response.", low=1_024)
    max_incremental_fetch_session_cache_slots: int = setting(1_000, "Maximum number of fetch sessions.", low=0)
    kcore_max_fetch_session_partitions: int = setting(
        500_000,
        "Maximum number of partitions of all fetch sessions together. A client whose session would exceed this limit "
        "gets no session, and must name all its partitions in each request. The same applies to a client above the "
        "limit max.incremental.fetch.session.cache.slots. One session has at most kcore.max.request.elements "
        "partitions.",
        low=0,
    )
    max_request_partition_size_limit: int = setting(
        2_000, "Maximum number of partitions in one DescribeTopicPartitions response.", low=1
    )

    # ---- connections
    socket_request_max_bytes: int = setting(
        104_857_600,
        "Maximum size of a request. kcore.max.request.bytes also limits all requests except Produce.",
        low=1,
    )
    connections_max_idle_ms: int = setting(
        600_000,
        "Time after which the server closes a connection that is idle or has not authenticated; -1: never.",
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
        INT_MAX, "Maximum number of connections from one address; the server closes further ones.", low=0, dynamic=True
    )
    max_connections_per_ip_overrides: str = setting(
        "",
        "Limits for single addresses in place of max.connections.per.ip: ADDRESS:COUNT, separated by commas.",
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
        -1,
        "Size of all incomplete and waiting requests at which the server stops reading from every connection; -1: "
        "no limit.",
        kind=LONG,
    )

    # ---- kcore's own
    kcore_data_dir: str = setting(
        "", "The data folder; `--data` sets it. If the setting is present, it must not be empty.", check=path_fault
    )
    kcore_durability: str = setting(
        "fsync",
        "The durability of a record when its producer gets the response. fsync: the record is on the device. os: the "
        "operating system has it, so it survives the end of the process, but not a power failure. memory: it is only "
        "in memory. Without a data folder, `kcore serve` keeps data in memory, and logs a warning unless this setting "
        "is `memory`. If fsync or os is set explicitly, the server refuses to start without a data folder.",
        choices=("fsync", "os", "memory"),
    )
    kcore_reserve_bytes: int = setting(
        16_777_216,
        "Size of the file `reserve`, with which `kcore serve` keeps disk space for an operator: on a full disk, `kcore "
        "topics delete DIR` and `kcore log compact DIR` use this space. If the disk is nearly full, the file is not "
        "created. 0: no file.",
        low=0,
        kind=LONG,
    )
    kcore_map_size: int = setting(
        268_435_456,
        "Initial address space for the log's file. kcore extends it when the log needs more.",
        low=1_048_576,
        kind=LONG,
    )
    kcore_snapshot_min_bytes: int = setting(
        1_048_576,
        "Minimum bytes of new records before a coordinator's partition is compacted. A restart loads the compacted "
        "log.",
        low=0,
        kind=LONG,
    )
    kcore_snapshot_live_ratio: float = setting(
        1.0,
        "Minimum bytes of new records before a coordinator's partition is compacted, as a multiple of its size after "
        "the last compaction. The partition must also reach kcore.snapshot.min.bytes.",
        low=0,
    )
    kcore_connection_buffer_bytes: int = setting(
        1_048_576,
        "Size of a client's unread responses at which further requests of its connection wait until the client reads.",
        low=1_024,
    )
    kcore_max_request_bytes: int = setting(
        8_388_608,
        "Maximum size of a request other than Produce. The server closes a connection when a request exceeds it. If "
        "twice message.max.bytes is more, that is the maximum instead: a request must have space for the largest "
        "record that a group may write.",
        low=65_536,
    )
    kcore_max_request_memory_bytes: int = setting(
        536_870_912,
        "Maximum bytes of incomplete and waiting requests of all connections together; -1: no limit. Above the limit, "
        "the server selects the client address with the most of these bytes, and closes the connection of this "
        "address that has held such bytes for the longest time. The limit should be larger than "
        "socket.request.max.bytes.",
        low=-1,
        kind=LONG,
    )
    kcore_max_group_metadata_bytes: int = setting(
        268_435_456,
        "Maximum bytes of the metadata (subscriptions, protocols, topologies) of the members of all groups together; "
        "-1: no limit. One group may have an eighth of it. A join or heartbeat that would exceed a limit gets "
        "GROUP_MAX_SIZE_REACHED, unless its group has less than 64 KiB. A member may always leave, or name fewer "
        "topics. kcore counts the memory that the metadata need. A topic name needs 200 bytes more than its "
        "characters. Each different topic of a group needs 384 bytes, each subtopology 512, and each client tag 192. "
        "If a classic member has more than four protocols, each further protocol needs 256 bytes more. Equal "
        "subscriptions of members of a group count once. Topics that a pattern matches do not count.",
        low=-1,
        kind=LONG,
    )
    kcore_max_request_elements: int = setting(
        25_000,
        "Maximum number of elements in all arrays of a request together, such as topics, partitions, groups and "
        "members. It bounds the time for which one request can block the event loop. The server closes the connection "
        "of a client that sends more. The same limit applies to the subscription that a classic consumer embeds when "
        "it joins a consumer group: a longer one gets UNKNOWN_SERVER_ERROR. The members of a consumer group or share "
        "group name at most twice as many different topics together; a member that names further topics gets "
        "GROUP_MAX_SIZE_REACHED. Topics that a pattern matches do not count.",
        low=1_000,
    )
    kcore_max_response_memory_bytes: int = setting(
        268_435_456,
        "Maximum bytes of responses that clients have not read, of all connections together; -1: no limit. A Fetch "
        "response has at most a quarter of the memory that remains below this limit, but always one batch. The server "
        "closes a connection instead of sending another response of more than 1 MiB that does not fit. At the limit, "
        "it serves only connections without unread responses.",
        low=-1,
        kind=LONG,
    )
    kcore_max_response_bytes: int = setting(
        50_331_648,
        "Maximum size of a response. In place of a longer one, the server sends the error POLICY_VIOLATION, or closes "
        "the connection if the response has no field for an error. A Fetch response may be longer by one record "
        "batch.",
        low=65_536,
        high=2_147_483_647,
    )
    kcore_response_stall_ms: int = setting(
        30_000,
        "Time after which the server closes a connection whose client reads none of its responses. It applies only "
        "while more than half of kcore.max.response.memory.bytes is used.",
        low=1,
        kind=LONG,
    )

    kcore_http_listen: str = setting(
        "",
        "HOST:PORT at which the server serves the console, /metrics, /healthz and /readyz; port 0 selects a free "
        "port; empty: none of them is served.",
    )

    kcore_metrics_max_partitions: int = setting(
        1_000,
        "Maximum number of partitions, and of topics, with metrics of their own in /metrics. kcore_metrics_omitted "
        "counts the others.",
        low=0,
    )


Config.SETTINGS = declared(Config) | declared(SecuritySettings)
