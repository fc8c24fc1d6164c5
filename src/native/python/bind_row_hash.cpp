#include "arrays.hpp"
#include "proximal/row_hash.hpp"

namespace steelyard::bind {

namespace {

template <class T>
void bind_dense(nb::module_& m) {
    m.def(
        "row_hashes",
        [](Array<const T, 2> X) {
            const std::size_t n = X.shape(0), d = X.shape(1);
            auto hashes = zeros<std::uint64_t, 1>({n});
            nb::gil_scoped_release unlocked;
            for (std::size_t i = 0; i < n; ++i) {
                std::uint64_t sum = 0;
                for (std::size_t j = 0; j < d; ++j) sum += hash_value(j, static_cast<double>(X.data()[i * d + j]));
                hashes.data()[i] = scramble(sum);
            }
            return hashes;
        },
        "X"_a.noconvert(), "Returns a hash of each row that depends only on its values.");
}

template <class T, class Index>
void bind_sparse(nb::module_& m) {
    m.def(
        "sparse_row_hashes",
        [](Array<const T, 1> values, Array<const Index, 1> columns, Array<const Index, 1> row_starts) {
            if (columns.size() != values.size() || row_starts.size() == 0 ||
                row_starts.data()[row_starts.size() - 1] != static_cast<Index>(values.size()))
                throw nb::value_error("sparse_row_hashes: array shapes disagree");
            const std::size_t n = row_starts.size() - 1;
            auto hashes = zeros<std::uint64_t, 1>({n});
            for (std::size_t i = 0; i < n; ++i) {
                std::uint64_t sum = 0;
                for (Index k = row_starts.data()[i]; k < row_starts.data()[i + 1]; ++k)
                    sum +=
                        hash_value(static_cast<std::size_t>(columns.data()[k]), static_cast<double>(values.data()[k]));
                hashes.data()[i] = scramble(sum);
            }
            return hashes;
        },
        "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(),
        "Returns the same hashes for a sparse matrix in CSR format without duplicates.");
}

}  // namespace

void bind_row_hash(nb::module_& m) {
    bind_dense<double>(m);
    bind_dense<float>(m);
    bind_sparse<double, std::int32_t>(m);
    bind_sparse<double, std::int64_t>(m);
    bind_sparse<float, std::int32_t>(m);
    bind_sparse<float, std::int64_t>(m);
}

}  // namespace steelyard::bind
