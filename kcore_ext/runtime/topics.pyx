"""The look-up of topics by name and by id, which most requests need."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject


cdef class TopicsCore:
    """Documented in topics.pyi."""

    def __cinit__(self, *arguments, **named):
        self._names, self._ids = {}, {}

    @property
    def image(self):
        return self._image

    @image.setter
    def image(self, image):
        cdef dict names = image.names
        cdef dict ids = image.ids
        if names is None or ids is None:
            raise TypeError("an image has the dictionaries `names` and `ids`")
        self._image, self._names, self._ids = image, names, ids

    def by_name(self, name):
        return self.named(name)

    def by_id(self, topic_id):
        return self.with_id(topic_id)

    cdef object named(self, object name):
        cdef PyObject* found = PyDict_GetItemWithError(self._names, name)
        return None if found is NULL else <object>found

    cdef object with_id(self, object topic_id):
        cdef PyObject* found = PyDict_GetItemWithError(self._ids, topic_id)
        return None if found is NULL else <object>found
