"""DefaultPrincipalData: a principal as one broker sends it to another broker (KIP-590)."""

from kcore.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """The principal of a forwarded request."""

    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
