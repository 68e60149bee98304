"""CRC-32C (Castagnoli): the checksum of record batches and of the log's own metadata."""

def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Computes the CRC-32C of some bytes (RFC 3720, appendix B.4).

    Args:
        data: the bytes; any contiguous buffer.
        crc: the CRC of the bytes before `data`; 0 if there are none.

    Returns:
        An unsigned number of 32 bits.
    """
