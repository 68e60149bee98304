# distutils: language = c++
"""The least loaded subscriber of a topic, kept live while loads change."""

from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem


cdef extern from * nogil:
    """
    #include <vector>
    // A class of topics is split by rack into cells; each cell is a tournament of its members by (load, index).
    struct KcoreLoads {
        std::vector<int> load;             // members
        std::vector<int> class_cell_first; // classes + 1
        std::vector<int> cell_rack;        // -1: no rack
        std::vector<int> cell_at;          // start of the cell's tree (2 * size entries)
        std::vector<int> cell_size;
        std::vector<int> tree;             // members
        std::vector<int> seat_first;       // members + 1
        std::vector<int> seat_cell, seat_leaf;

        inline bool less(int a, int b) const { return load[a] != load[b] ? load[a] < load[b] : a < b; }

        void build(int cell) {
            int *t = tree.data() + cell_at[cell];
            for (int i = cell_size[cell] - 1; i > 0; i--) t[i] = less(t[2 * i + 1], t[2 * i]) ? t[2 * i + 1] : t[2 * i];
        }
        void changed(int member) {
            for (int s = seat_first[member]; s < seat_first[member + 1]; s++) {
                int *t = tree.data() + cell_at[seat_cell[s]];
                for (int i = seat_leaf[s] >> 1; i > 0; i >>= 1) {
                    int winner = less(t[2 * i + 1], t[2 * i]) ? t[2 * i + 1] : t[2 * i];
                    if (t[i] == winner && winner != member) break;
                    t[i] = winner;
                }
            }
        }
        inline int least(int cell) const { return tree[cell_at[cell] + 1]; }
        inline int least_of_class(int c) const {
            int best = -1;
            for (int cell = class_cell_first[c]; cell < class_cell_first[c + 1]; cell++) {
                int m = least(cell);
                if (best < 0 || less(m, best)) best = m;
            }
            return best;
        }
    };
    """
    cppclass Loads "KcoreLoads":
        vector[int] load
        vector[int] class_cell_first
        vector[int] cell_rack
        vector[int] cell_at
        vector[int] cell_size
        vector[int] tree
        vector[int] seat_first
        vector[int] seat_cell
        vector[int] seat_leaf
        void build(int cell)
        void changed(int member)
        int least(int cell)
        int least_of_class(int c)


cdef int seat(Problem p, bint by_rack, Loads& loads) noexcept nogil
