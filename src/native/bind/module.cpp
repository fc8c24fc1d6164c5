#include "arrays.hpp"

NB_MODULE(_native, m) {
    m.doc() = "Loops over numbers. Policy, names and checks live in Python.";
    steelyard::bind::bind_simd(m);
    steelyard::bind::bind_gram(m);
    steelyard::bind::bind_row_hash(m);
    steelyard::bind::bind_kernels(m);
    steelyard::bind::bind_sequences(m);
    steelyard::bind::bind_boundary(m);
    steelyard::bind::bind_window_auc(m);
}
