# distutils: language = c++
"""What the two sticky paths share: claims settled, and the state they work on."""

from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem


cdef extern from * nogil:
    """
    #include <vector>
    struct KcoreStickyFront {
        std::vector<int> owner;    // partitions: settled owner, -1: nobody
        std::vector<char> doubly;  // partitions claimed twice in one generation (empty: none)
        std::vector<int> older;    // partitions: claimant of an older generation, -1 (empty: none)
        bool rack_aware = false;
        bool given = false;        // `owner` is set and settled already
    };
    """
    cppclass Front "KcoreStickyFront":
        vector[int] owner
        vector[char] doubly
        vector[int] older
        bint rack_aware
        bint given


cdef int settle(Problem p, Front& front) noexcept nogil
