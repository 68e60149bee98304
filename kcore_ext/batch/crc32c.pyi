"""CRC-32C (Castagnoli): the checksum of record batches and of what the log keeps beside them."""

def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The CRC-32C of some bytes (RFC 3720, appendix B.4).

    Args:
        data: the bytes; any contiguous buffer.
        crc: the CRC of what stands before them; 0 for nothing.

    Returns:
        An unsigned number of 32 bits.
    """
