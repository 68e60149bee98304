"""Settings and the tests that verify their effect: a test fails if kcore ignores its setting.

`NAMED` lists tests that set the setting themselves or in a helper of their module. `INDIRECT` lists tests that depend
on the setting's default, or that set it by a command-line option. Each row of `INDIRECT` has a test and a value of the
setting with which the test fails; "" stands for the default. test_ignored_settings.py checks that these tests fail.
"""

from __future__ import annotations

NAMED = {
    "auto.leader.rebalance.enable": "cluster/test_handover.py::test_a_node_hands_all_partitions_over_before_it_stops",
    "broker.heartbeat.interval.ms": "cluster/test_node.py::test_leases_have_kafkas_settings",
    "broker.session.timeout.ms": "cluster/test_node.py::test_leases_have_kafkas_settings",
    "sasl.mechanism.inter.broker.protocol": "cluster/test_node.py::test_nodes_connect_with_tls_and_sasl",
    "security.inter.broker.protocol": "cluster/test_node.py::test_an_unusable_listener_is_refused",
    "listeners": "server/test_accept.py::test_all_addresses_of_a_listener_have_the_same_port",
    "advertised.listeners": "cli/test_serve.py::test_each_listener_advertises_its_own_address",
    "group.coordinator.rebalance.protocols": "group/consumer/test_heartbeats.py::test_the_protocol_can_be_disabled",
    "group.consumer.max.size": "group/consumer/test_heartbeats.py::test_a_full_group_refuses_new_members",
    "group.consumer.assignors": "group/consumer/test_heartbeats.py::test_a_custom_assignor_serves_a_group",
    "group.share.max.size": "group/share/test_heartbeats.py::test_a_full_group_refuses_new_members",
    "group.share.max.share.sessions": "broker/share/test_sessions.py::test_too_many_sessions_wait_and_are_refused",
    "group.streams.max.size": "group/streams/test_heartbeats.py::test_a_full_group_refuses_every_join",
    "kcore.streams.assignor": "group/streams/test_heartbeats.py::"
    "test_an_invalid_result_of_a_custom_assignor_is_refused",
    "offsets.topic.compression.codec": "group/test_record_limits.py::test_records_of_groups_are_compressed",
    "offset.metadata.max.bytes": "group/offsets/test_offset_commit.py::test_metadata_is_limited_in_utf16_code_units",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "transaction/test_time.py::"
    "test_a_transaction_is_aborted_at_the_first_check_after_its_timeout",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "transaction/test_time.py::test_an_unused_id_expires",
    "transactional.id.expiration.ms": "transaction/test_time.py::test_an_unused_id_expires",
    "transaction.partition.verification.enable": "broker/data/test_producer_state.py::"
    "test_idle_producers_expire_and_others_stay",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "share/test_coordinator.py::test_without_updates_every_write_is_a_snapshot"
    ),
    "delete.topic.enable": "broker/metadata/test_topic_apis.py::test_deletion_can_be_disabled",
    "log.retention.check.interval.ms": "broker/data/test_offsets_and_retention.py::test_retention_runs_by_its_timer",
    "log.cleaner.backoff.ms": "cli/test_log_verify.py::test_a_compacted_folder_is_valid_and_has_the_same_state",
    "kcore.max.fetch.session.partitions": "broker/data/test_fetch_session_bounds.py::"
    "test_the_partitions_of_all_sessions_are_limited",
    "max.request.partition.size.limit": "broker/metadata/test_topic_apis.py::test_pages_join_to_the_whole",
    "socket.request.max.bytes": "server/test_malformed.py::test_an_unreadable_request_closes_its_connection_only",
    "connections.max.idle.ms": "server/test_limits.py::test_idle_connections_are_closed",
    "max.connections": "server/test_limits.py::test_a_higher_limit_applies_at_once",
    "max.connections.per.ip": "server/test_limits.py::"
    "test_connections_of_one_address_beyond_its_limit_are_closed_at_once",
    "max.connections.per.ip.overrides": "server/test_limits.py::test_single_addresses_have_their_own_limit",
    "max.connection.creation.rate": "server/test_limits.py::test_connections_beyond_the_rate_of_the_server_wait",
    "queued.max.request.bytes": "server/test_limits.py::test_requests_of_all_connections_together_are_bounded",
    "kcore.reserve.bytes": "cli/test_reserve.py::test_a_server_creates_the_reserve",
    "kcore.data.dir": "cli/test_serve.py::test_without_a_data_folder_a_warning_is_logged",
    "kcore.http.listen": "cli/test_serve.py::test_metrics_are_served_at_the_address_of_the_setting",
    "kcore.durability": "cli/test_serve.py::test_without_a_data_folder_a_warning_is_logged",
    "kcore.snapshot.min.bytes": "runtime/test_snapshots.py::test_a_pass_runs_only_when_enough_records_are_new",
    "kcore.snapshot.live.ratio": "runtime/test_snapshots.py::test_a_pass_runs_only_when_enough_records_are_new",
    "kcore.connection.buffer.bytes": "server/test_limits.py::test_responses_of_a_client_that_never_reads_are_bounded",
    "kcore.max.request.bytes": "server/test_request_bounds.py::"
    "test_a_long_request_is_refused_when_more_than_the_limit_has_arrived",
    "kcore.max.request.memory.bytes": "server/test_request_bounds.py::"
    "test_unfinished_requests_of_all_connections_together_are_bounded",
    "kcore.max.group.metadata.bytes": "group/classic/test_metadata_bound.py::"
    "test_a_group_may_have_an_eighth_of_the_limit",
    "kcore.max.request.elements": "server/test_request_bounds.py::"
    "test_a_request_with_too_many_elements_is_refused_before_it_is_decided",
    "kcore.max.response.memory.bytes": "server/test_unread.py::"
    "test_without_room_connections_with_unread_responses_wait_and_others_are_served",
    "kcore.max.response.bytes": "server/test_response_bounds.py::test_a_response_beyond_the_limit_is_an_error",
    "listener.security.protocol.map": "security/test_tls_settings.py::test_listeners_have_protocols",
    "ssl.keystore.type": "security/test_key_material.py::test_a_pkcs12_file_has_the_key_and_the_authorities",
    "ssl.keystore.location": "security/test_tls_settings.py::test_a_context_has_the_settings",
    "ssl.keystore.password": "security/test_key_material.py::test_a_pkcs12_file_has_the_key_and_the_authorities",
    "ssl.keystore.key": "security/test_key_material.py::test_keys_and_certificates_may_be_texts",
    "ssl.keystore.certificate.chain": "security/test_key_material.py::test_keys_and_certificates_may_be_texts",
    "ssl.key.password": "security/test_key_material.py::test_an_encrypted_text_needs_the_password",
    "ssl.truststore.type": "security/test_key_material.py::test_a_pkcs12_file_has_the_key_and_the_authorities",
    "ssl.truststore.location": "security/test_tls_settings.py::test_a_context_has_the_settings",
    "ssl.truststore.password": "security/test_key_material.py::test_a_pkcs12_file_has_the_key_and_the_authorities",
    "ssl.truststore.certificates": "security/test_key_material.py::test_keys_and_certificates_may_be_texts",
    "ssl.client.auth": "security/test_real_clients.py::test_a_missing_or_foreign_certificate_is_refused",
    "ssl.enabled.protocols": "security/test_tls_settings.py::test_a_context_has_the_settings",
    "ssl.cipher.suites": "security/test_tls_settings.py::test_a_context_has_the_settings",
    "sasl.enabled.mechanisms": "security/test_jwt_validator.py::test_a_real_client_authenticates_with_a_token",
    "sasl.oauthbearer.jwks.endpoint.url": "security/test_jwt_validator.py::"
    "test_a_real_client_authenticates_with_a_token",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "security/test_jwt_validator.py::test_keys_are_read_when_they_are_due",
    "sasl.oauthbearer.expected.audience": "security/test_jwt_validator.py::test_invalid_tokens_are_refused",
    "sasl.oauthbearer.expected.issuer": "security/test_jwt_validator.py::test_invalid_tokens_are_refused",
    "plain.sasl.jaas.config": "security/test_plain_and_oauthbearer.py::test_a_listener_has_the_users_of_its_settings",
    "authorizer.class.name": "security/test_custom_authorizers.py::test_a_custom_authorizer_decides",
    "super.users": "security/test_custom_authorizers.py::test_invalid_authorizers_stop_the_start",
    "allow.everyone.if.no.acl.found": "security/test_acls.py::test_everyone_is_allowed_where_no_entry_is_found",
    "group.consumer.migration.policy": "group/migration/test_policy.py::test_a_classic_member_joins_a_consumer_group",
    "sasl.jaas.config": "config/test_jaas.py::test_the_name_without_a_mechanism_is_the_default_of_listeners",
}

INDIRECT = {
    "kcore.metrics.max.partitions": (
        "observability/test_data_metrics.py::test_the_number_of_series_is_bounded",
        "1000",
    ),
    "group.consumer.regex.refresh.interval.ms": (
        "group/consumer/test_heartbeats.py::test_patterns_are_resolved_again_after_the_interval",
        "86400000",
    ),
    "group.share.initialize.retry.interval.ms": (
        "group/share/test_heartbeats.py::test_an_unconfirmed_initialization_is_requested_again_after_the_retry_interval",
        "86400000",
    ),
    "sasl.oauthbearer.clock.skew.seconds": ("security/test_jwt_validator.py::test_valid_tokens_are_accepted", "0"),
    "sasl.oauthbearer.scope.claim.name": (
        "security/test_jwt_validator.py::test_the_user_may_be_in_another_claim",
        "",
    ),
    "sasl.oauthbearer.sub.claim.name": ("security/test_jwt_validator.py::test_the_user_may_be_in_another_claim", ""),
    "sasl.server.max.receive.size": (
        "security/test_sasl_wire.py::test_frames_have_a_smaller_limit_until_authentication",
        "1048576",
    ),
    "kcore.response.stall.ms": (
        "server/test_unread.py::test_a_peer_that_reads_nothing_is_closed_when_memory_is_short",
        "3600000",
    ),
}

VALIDATED = {"sasl.server.callback.handler.class": "com.example.Handler", "process.roles": "controller"}
"""Setting -> a value that kcore refuses. kcore uses these settings only for this check."""
