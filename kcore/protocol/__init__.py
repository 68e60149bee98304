"""What Kafka's bytes mean: messages, internal records, error codes, the embedded consumer protocol."""

try:
    from kcore_ext.codec.plan import DecodeError, EncodeError, MessageTooLargeError
except ImportError:  # no build of it here: see plain
    from kcore.protocol.pure import DecodeError, EncodeError, MessageTooLargeError  # type: ignore[assignment]

__all__ = ["DecodeError", "EncodeError", "MessageTooLargeError"]
