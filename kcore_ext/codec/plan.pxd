"""Compiled plans, which the codec executes instead of interpreting declarations.

A `Plan` belongs to one (class, version, flexible) and lists the fields of that version in wire order. It borrows all
its pointers from the `Schema` and `PlanHolder` objects that own it, which live as long as the message class.
"""

from cpython.object cimport PyObject, PyTypeObject

cdef enum Kind:
    BOOL = 1
    INT8 = 2
    INT16 = 3
    UINT16 = 4
    INT32 = 5
    UINT32 = 6
    INT64 = 7
    FLOAT64 = 8
    UUID = 9
    STRING = 10
    BYTES = 11
    RECORDS = 12
    STRUCT = 13
    ARRAY = 14

cdef struct Op:
    int kind                # a Kind
    int item                # the elements' Kind, for an array
    int tag                 # -1 in the fixed part
    bint compact            # lengths are unsigned varints of length + 1
    bint nullable
    bint ignorable
    Py_ssize_t offset       # of the slot inside the object
    Py_ssize_t min_size  # the minimum encoded size of the value; of one element for an array
    PyObject* default       # NULL: a new struct of plan.type
    PyObject* name
    Plan* plan              # of the struct, or of an array's elements

cdef struct Plan:
    PyTypeObject* type
    bint flexible
    int n_ops
    int n_tags
    int n_absent
    Op* ops                 # fixed part, in wire order
    Op* tags                # tagged fields, ascending
    Op* absent              # fields that this version lacks
    Py_ssize_t min_size

cdef class FieldSpec:
    cdef readonly str name
    cdef readonly int kind
    cdef readonly int item
    cdef readonly object struct
    cdef readonly tuple versions
    cdef readonly tuple nullable
    cdef readonly tuple tagged
    cdef readonly int tag
    cdef readonly bint ignorable
    cdef readonly bint compact
    cdef readonly object default
    cdef readonly bint fresh

cdef class PlanHolder:
    cdef Plan plan
    cdef list owners

cdef class Schema:
    cdef readonly object cls
    cdef readonly tuple fields
    cdef readonly int api_key
    cdef readonly int min_version
    cdef readonly int max_version
    cdef readonly int flexible_since
    cdef int n
    cdef PyObject** names
    cdef PyObject** defaults
    cdef Py_ssize_t* offsets
    cdef PyTypeObject** structs
    cdef Plan* recent[64]
    cdef dict holders
    cdef Plan* plan(self, int version, bint flexible) except NULL
    cdef PlanHolder holder(self, int version, bint flexible)

cdef Schema schema_of(PyTypeObject* cls)
cdef void register(PyTypeObject* cls, Schema schema)
