"""Monotonic clocks in nanoseconds, for compiled modules."""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <time.h>
    static inline int64_t kcore_exact_now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    /* A clock with a resolution of a few milliseconds, which costs a fifth of the exact one. */
    static inline int64_t kcore_coarse_now_ns(void) {
    #ifdef CLOCK_MONOTONIC_COARSE
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    #else
        return kcore_exact_now_ns();
    #endif
    }
    """
    int64_t exact_now_ns "kcore_exact_now_ns"() noexcept
    int64_t coarse_now_ns "kcore_coarse_now_ns"() noexcept
