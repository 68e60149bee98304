"""What Kafka's bytes mean: messages, internal records, error codes, the embedded consumer protocol."""

from kcore_ext.codec_plan import DecodeError, EncodeError

__all__ = ["DecodeError", "EncodeError"]
