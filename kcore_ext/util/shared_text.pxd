"""The table of shared texts, for other compiled modules."""

cpdef object shared_text(object text)
