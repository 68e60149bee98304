"""The topics of a demonstration."""

from __future__ import annotations

from collections.abc import Mapping

TIMEOUT_S = 30


def make_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Creates topics and waits until they exist.

    Args:
        bootstrap: HOST:PORT of the server.
        topics: topic -> number of its partitions.

    Raises:
        confluent_kafka.KafkaException: the server refused the request.
    """
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, partitions, 1) for name, partitions in topics.items()]
    for created in admin.create_topics(wanted).values():
        created.result(TIMEOUT_S)
