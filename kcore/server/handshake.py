"""Logs failed TLS handshakes, which event loops drop silently."""

from __future__ import annotations

import logging
import ssl

from kcore.process_logging import fields

logger = logging.getLogger(__name__)

# As alerts of a client these are its own errors; raised by OpenSSL they mostly mean that the client sent no TLS at all.
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE"}


def tell_failures(context: ssl.SSLContext, listener: str) -> None:
    """Logs a warning for every handshake that fails with `context`.

    Neither the connection's protocol nor the loop's exception handler learns of a client without a completed handshake.
    Only the SSL object does; it does not know the client's address.

    Args:
        context: the listener's TLS context.
        listener: the listener's name.
    """

    class LoggingSSLObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                reason = error.reason or str(error)
                hint = "; the client may not use TLS" if reason in NO_TLS else ""
                logger.warning("TLS handshake failed: %s%s", reason, hint, extra=fields(listener=listener))
                raise

    context.sslobject_class = LoggingSSLObject
