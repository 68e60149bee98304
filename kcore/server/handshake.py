"""TLS handshakes that fail: loops drop such clients and tell nobody."""

from __future__ import annotations

import logging
import ssl

from kcore.process_logging import fields

logger = logging.getLogger(__name__)

# Said by a client, they are its own affair; said by OpenSSL of what a client sent, most often it sent no TLS at all.
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE"}


def tell_failures(context: ssl.SSLContext, listener: str) -> None:
    """Has every handshake that fails with `context` logged, as a warning.

    The protocol of a connection is not told of a client without a handshake, nor is the loop's handler of errors; what
    the loop shakes hands with is. It does not know the client's address.

    Args:
        context: of a listener.
        listener: its name.
    """

    class Telling(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                reason = error.reason or str(error)
                hint = " (a client without TLS?)" if reason in NO_TLS else ""
                logger.warning("a TLS handshake failed: %s%s", reason, hint, extra=fields(listener=listener))
                raise

    context.sslobject_class = Telling
