"""ClientHello messages of TLS 1.3 with any groups and key shares."""

from __future__ import annotations

X25519, P_256, FFDHE_2048, FFDHE_8192, UNKNOWN = 29, 23, 0x0100, 0x0104, 0x1234
SHARE_BYTES = {X25519: 32, FFDHE_2048: 256, FFDHE_8192: 1_024}


def block(length_bytes: int, data: bytes) -> bytes:
    return len(data).to_bytes(length_bytes, "big") + data


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in values)


def message(named: tuple[int, ...], shared: tuple[int, ...], versions: tuple[int, ...] = (0x0304,)) -> bytes:
    """Creates a ClientHello without its record header."""
    shares = b"".join(numbers(group) + block(2, bytes(range(1, 33)) * (SHARE_BYTES[group] // 32)) for group in shared)
    extensions = (
        numbers(10) + block(2, block(2, numbers(*named)))
        + numbers(13) + block(2, block(2, numbers(0x0804, 0x0403)))
        + numbers(43) + block(2, block(1, numbers(*versions)))
        + numbers(51) + block(2, block(2, shares))
    )  # fmt: skip
    body = b"\x03\x03" + bytes(32) + block(1, b"") + block(2, numbers(0x1301)) + block(1, b"\x00")
    return b"\x01" + block(3, body + block(2, extensions))


def record(payload: bytes, kind: int = 22) -> bytes:
    return bytes([kind, 3, 1]) + block(2, payload)
