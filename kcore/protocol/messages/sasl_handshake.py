"""SaslHandshake (API key 17): choosing a SASL mechanism (KIP-43)."""

from kcore.protocol.schema import Array, Int16, Message, Request, String


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], api_key=17, versions="0-1"):
    """The mechanism that the client requests. After v1, the client sends SaslAuthenticate requests (KIP-152)."""

    mechanism: String = ""


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """The enabled mechanisms, and an error code if the requested mechanism is not enabled."""

    error_code: Int16 = 0
    mechanisms: Array[String] = ()
