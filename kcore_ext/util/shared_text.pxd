cpdef object shared_text(object text)
