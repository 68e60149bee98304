"""Messages, frames and headers, for other compiled modules (a server's hot path)."""

from kcore_ext.codec.plan cimport Schema

cdef struct RequestHead:
    int api_key
    int api_version
    int correlation_id
    Py_ssize_t body         # where the request's body begins

cdef object read_request_header(const unsigned char* data, Py_ssize_t size, Py_ssize_t position, RequestHead* head)
cdef object decode_message(Schema schema, object data, int version, Py_ssize_t position, Py_ssize_t max_elements)
cdef bytes encode_message(object message, int version)

# Builds the whole frame of a response; MessageTooLargeError if it would exceed `limit_bytes` (default: 2 GiB + 3).
cdef bytes encode_response_frame(
    object response, int version, int correlation_id, int header_version, Py_ssize_t limit_bytes=*
)
cdef bytes frame_with_id(bytes frame, int correlation_id)   # the frame of a response, for another request
