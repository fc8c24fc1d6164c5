#include "arrays.hpp"
#include "proximal/gram.hpp"

namespace steelyard::bind {

namespace {

template <class T>
void bind_largest(nb::module_& m) {
    m.def(
        "largest_magnitude",
        [](nb::ndarray<const T, nb::c_contig, nb::device::cpu> values, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            return largest_magnitude(std::span<const T>(values.data(), values.size()), n_threads);
        },
        "values"_a.noconvert(), "n_threads"_a = 1, "Returns the largest absolute value, or NaN if any value is NaN.");
}

}  // namespace

void bind_gram(nb::module_& m) {
    bind_largest<double>(m);
    bind_largest<float>(m);
}

}  // namespace steelyard::bind
