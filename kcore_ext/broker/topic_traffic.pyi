"""The counters of a topic's traffic."""

class TopicTraffic:
    """The counts and sizes of the records that clients have written to a topic or read since the node was opened.

    Attributes:
        received_records: appended records of producers. The records of coordinators do not count.
        received_bytes: the size of the batches of these records, as the producers sent them.
        sent_records: records in the responses to Fetch requests, in whole batches.
        sent_bytes: the size of these batches.
    """

    received_records: int
    received_bytes: int
    sent_records: int
    sent_bytes: int

    def add(self, other: TopicTraffic) -> None:
        """Adds the counters of another topic."""
