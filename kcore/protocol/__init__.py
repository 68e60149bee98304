"""What Kafka's bytes mean: messages, internal records, error codes, the embedded consumer protocol."""

try:
    from kcore_ext.codec_plan import DecodeError, EncodeError
except ImportError:  # no build of it here: see plain
    from kcore.protocol.plain import DecodeError, EncodeError  # type: ignore[assignment]

__all__ = ["DecodeError", "EncodeError"]
