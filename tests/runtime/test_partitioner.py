"""kcore computes the coordinator partition of a key like Kafka: from the absolute value of Java's string hash.

Java's absolute value of the hash -2^31 is negative, so Kafka uses 0 in this case.
"""

import pytest

from kcore.runtime import java_hash, partition_for

VECTORS = [
    ("", 0, 0),
    ("a", 97, 47),
    ("foo", 101574, 24),
    ("group-1", 293427299, 49),
    ("test-group", 627841412, 12),
    ("my-group", -1906497762, 12),
    ("组", 32452, 2),
    ("😀", 1772899, 49),
    ("polygenelubricants", -2147483648, 0),
]


@pytest.mark.parametrize(("key", "value", "partition"), VECTORS)
def test_hash_and_partition_equal_javas(key: str, value: int, partition: int) -> None:
    assert java_hash(key) == value
    assert partition_for(key, 50) == partition


def test_a_lone_surrogate_is_one_code_unit() -> None:
    assert java_hash("\ud800") == 0xD800
