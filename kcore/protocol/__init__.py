"""Kafka's wire format: messages, internal records, error codes, and the embedded consumer protocol."""

try:
    from kcore_ext.codec.plan import DecodeError, EncodeError, MessageTooLargeError
except ImportError:  # no build of the extension: pure stands in
    from kcore.protocol.pure import DecodeError, EncodeError, MessageTooLargeError  # type: ignore[assignment]

__all__ = ["DecodeError", "EncodeError", "MessageTooLargeError"]
