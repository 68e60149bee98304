"""A record of the partition moves in one run of the sticky assignor for unequal subscriptions."""

from kcore_ext.assign.containers cimport Index, Memory


cdef struct Moves:
    Memory* memory
    int partitions
    int* source                    # partitions; -1: not moved
    int* target
    # Sets of partitions, one for each (topic, source, target) with moves: pairing heaps, so that their least is known.
    Index sets                     # hash of the three -> set
    int* set_topic
    int* root  # set -> its least partition
    int live                       # sets with partitions
    # Links of the heaps, by partition; -1: none.
    int* child
    int* next
    int* before                    # left neighbour, or the parent of a first child


cdef int start_moves(Moves* moves, Memory* memory, int partitions) except -1 nogil
cdef int actual_partition(Moves* moves, int topic, int partition, int source, int target) noexcept nogil
cdef int record_move(Moves* moves, int topic, int partition, int source, int target) except -1 nogil
