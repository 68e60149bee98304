class EncodedFastPath:
    """The base of fast paths that can serve a request without decoding it.

    A server calls such a fast path with the bytes of the request. If the fast path cannot read them, the server decodes
    the request and calls the API's `fast`, as for every other API.
    """
