"""The memory of message objects: only slots after the object's head.

A message's class has no instance dictionary, no weak references and no finalizer. Creating, visiting and freeing an
object are therefore loops over its slots. Python's general routines for this are several times slower, and took a third
of the time of decoding. This module keeps a bounded number of small freed objects for reuse, as Python does with
tuples.
"""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    /* Freed objects are kept under the interpreter's lock only, and not if a sanitizer must find uses after free. */
    #if !defined(Py_GIL_DISABLED) && !defined(KCORE_SANITIZE)
    #define KCORE_KEEPS
    #endif

    #define KCORE_SIZES 24   /* objects with up to 23 slots are kept */
    #define KCORE_KEPT 256   /* of each size */
    #define KCORE_DEPTH 40   /* structs inside of structs that are freed by recursion */

    static PyObject *kcore_free[KCORE_SIZES][KCORE_KEPT];
    static int kcore_free_count[KCORE_SIZES];

    #define KCORE_SLOTS(cls) (((cls)->tp_basicsize - (Py_ssize_t)sizeof(PyObject)) / (Py_ssize_t)sizeof(PyObject *))
    #define KCORE_SLOT(self) ((PyObject **)((char *)(self) + sizeof(PyObject)))

    static void kcore_dealloc(PyObject *self);

    static inline PyObject *kcore_new(PyTypeObject *cls) {
        Py_ssize_t slots = KCORE_SLOTS(cls);
        PyObject *self;
    #ifdef KCORE_KEEPS
        if (slots < KCORE_SIZES && kcore_free_count[slots] && cls->tp_dealloc == kcore_dealloc) {
            self = PyObject_Init(kcore_free[slots][--kcore_free_count[slots]], cls);
            PyObject_GC_Track(self);
            return self;
        }
    #endif
        if (!PyType_IS_GC(cls)) return cls->tp_alloc(cls, 0);  /* a class without fields */
        self = (PyObject *)PyObject_GC_New(PyObject, cls);
        if (self == NULL) return NULL;
        memset(KCORE_SLOT(self), 0, slots * sizeof(PyObject *));
        PyObject_GC_Track(self);
        return self;
    }

    static int kcore_traverse(PyObject *self, visitproc visit, void *arg) {
        PyObject **slot = KCORE_SLOT(self);
        Py_ssize_t slots = KCORE_SLOTS(Py_TYPE(self));
        for (Py_ssize_t i = 0; i < slots; i++) Py_VISIT(slot[i]);
        Py_VISIT(Py_TYPE(self));
        return 0;
    }

    static int kcore_clear(PyObject *self) {
        PyObject **slot = KCORE_SLOT(self);
        Py_ssize_t slots = KCORE_SLOTS(Py_TYPE(self));
        for (Py_ssize_t i = 0; i < slots; i++) Py_CLEAR(slot[i]);
        return 0;
    }

    static inline void kcore_release(PyObject *self) {
        PyTypeObject *cls = Py_TYPE(self);
        Py_ssize_t slots = KCORE_SLOTS(cls);
        PyObject **slot = KCORE_SLOT(self), **end = slot + slots;
        for (; slot < end; slot++) {
            PyObject *value = *slot;
            *slot = NULL;
            Py_XDECREF(value);
        }
    #ifdef KCORE_KEEPS
        if (slots < KCORE_SIZES && kcore_free_count[slots] < KCORE_KEPT) {
            kcore_free[slots][kcore_free_count[slots]++] = self;
        } else
    #endif
        PyObject_GC_Del(self);
        Py_DECREF(cls);
    }

    /* Structs are nested this deeply only on purpose. Python's trashcan frees them without recursion. */
    static void kcore_dealloc_deep(PyObject *self) {
        Py_TRASHCAN_BEGIN(self, kcore_dealloc)
        kcore_release(self);
        Py_TRASHCAN_END
    }

    static int kcore_depth = 0;

    static void kcore_dealloc(PyObject *self) {
        PyObject_GC_UnTrack(self);
        if (kcore_depth < KCORE_DEPTH) {
            kcore_depth++;
            kcore_release(self);
            kcore_depth--;
        } else {
            kcore_dealloc_deep(self);
        }
    }

    static int kcore_is_plain(PyTypeObject *cls, PyTypeObject *base, Py_ssize_t slots) {
        return cls->tp_basicsize == base->tp_basicsize + slots * (Py_ssize_t)sizeof(PyObject *)
            && base->tp_basicsize == (Py_ssize_t)sizeof(PyObject) && cls->tp_itemsize == 0
            && !cls->tp_dictoffset && !cls->tp_weaklistoffset && !cls->tp_del
            && (!cls->tp_finalize || cls->tp_finalize == base->tp_finalize) && !base->tp_finalize;
    }

    static void kcore_adopt(PyTypeObject *cls) {
        cls->tp_dealloc = kcore_dealloc;
        cls->tp_traverse = kcore_traverse;
        cls->tp_clear = kcore_clear;
    }
    """
    PyObject* kcore_new(PyTypeObject* cls) noexcept
    bint kcore_is_plain(PyTypeObject* cls, PyTypeObject* base, Py_ssize_t slots) noexcept
    void kcore_adopt(PyTypeObject* cls) noexcept


cdef PyObject* new_instance(PyTypeObject* cls) noexcept:
    """Creates an object with empty slots, tracked by the garbage collector; NULL if out of memory."""
    return kcore_new(cls)


cdef int adopt(PyTypeObject* cls, PyTypeObject* base) except -1:
    """Makes a declared class use the routines of this module to visit and free its objects.

    Args:
        cls: the class.
        base: the base of all declared classes, which has no slots.

    Raises:
        TypeError: the class has an instance dictionary, weak references, a finalizer, or slots beside its fields.
    """
    declared = <object>cls
    if not kcore_is_plain(cls, base, len(declared.FIELDS)):
        raise TypeError(f"{declared.__name__} may have fields and nothing else: no other slots, dictionary or finalizer")
    if declared.FIELDS:
        kcore_adopt(cls)
    return 0
