#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "arrays.hpp"
#include "steelyard/gram.hpp"

namespace steelyard::bind {

namespace {

template <class T>
void bind_class_grams(nb::module_& m) {
    m.def(
        "add_class_grams",
        [](Array<const T, 2> X, Array<const std::int32_t, 1> codes, std::optional<Array<const double, 1>> weights,
           Array<const double, 1> origin, std::vector<Array<double, 2>> grams, unsigned n_threads) {
            const std::size_t n = X.shape(0), d = X.shape(1);
            if (codes.size() != n || origin.size() != d || (weights && weights->size() != n))
                throw nb::value_error("add_class_grams: array shapes disagree");
            if (n > UINT32_MAX) throw nb::value_error("add_class_grams: more than 2^32 - 1 rows in one call");
            for (std::size_t i = 0; i < n; ++i)
                if (codes.data()[i] >= static_cast<std::int64_t>(grams.size()))
                    throw nb::value_error("add_class_grams: a code is out of range");
            std::vector<double*> targets;
            for (auto& gram : grams) {
                if (gram.shape(0) != d + 1 || gram.shape(1) != d + 1)
                    throw nb::value_error("add_class_grams: a matrix has the wrong shape");
                targets.push_back(gram.data());
            }
            nb::gil_scoped_release unlocked;
            add_grams<T>({X.data(), n, d}, span(codes), weights ? span(*weights) : std::span<const double>{},
                         span(origin), targets, n_threads);
        },
        "X"_a.noconvert(), "codes"_a.noconvert(), "weights"_a.noconvert().none(), "origin"_a.noconvert(), "grams"_a,
        "n_threads"_a = 1,
        "Adds weight * e e' with e = [x - origin, -1] to the matrix of each row's class, lower triangles only; "
        "rows with a negative code are passed over. All values must be finite.");
    m.def(
        "largest_magnitude",
        [](nb::ndarray<const T, nb::c_contig, nb::device::cpu> values, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            return largest_magnitude(std::span<const T>(values.data(), values.size()), n_threads);
        },
        "values"_a.noconvert(), "n_threads"_a = 1,
        "Largest absolute value; NaN if there is one, else infinity if there is one.");
}

template <class Index>
void bind_sparse_gram(nb::module_& m) {
    m.def(
        "sparse_gram",
        [](Array<const double, 1> values, Array<const Index, 1> columns, Array<const Index, 1> row_starts,
           Array<const std::int32_t, 1> codes, std::optional<Array<const double, 1>> weights, std::int32_t code,
           std::size_t n_features) {
            const std::size_t n = codes.size();
            if (row_starts.size() != n + 1 || columns.size() != values.size() || (weights && weights->size() != n))
                throw nb::value_error("sparse_gram: array shapes disagree");
            const Index stored = static_cast<Index>(values.size());
            if (row_starts.data()[0] != 0 || row_starts.data()[n] != stored)
                throw nb::value_error("sparse_gram: row starts do not span the values");
            for (std::size_t i = 0; i < n; ++i) {
                const Index begin = row_starts.data()[i], end = row_starts.data()[i + 1];
                if (begin > end || end > stored) throw nb::value_error("sparse_gram: row starts must not fall");
                for (Index k = begin; k < end; ++k) {
                    const Index column = columns.data()[k];
                    if (column < 0 || static_cast<std::size_t>(column) >= n_features ||
                        (k > begin && columns.data()[k - 1] >= column))
                        throw nb::value_error("sparse_gram: column indices must be sorted, unique and in range");
                }
            }
            auto gram = zeros<double, 2>({n_features + 1, n_features + 1});
            nb::gil_scoped_release unlocked;
            add_gram_sparse<Index>(span(values), span(columns), span(row_starts), span(codes),
                                   weights ? span(*weights) : std::span<const double>{}, code, n_features, gram.data());
            return gram;
        },
        "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(), "codes"_a.noconvert(),
        "weights"_a.noconvert().none(), "code"_a, "n_features"_a,
        "The Gram matrix of one class of a sparse table (compressed rows), relative to origin 0; lower triangle.");
}

}  // namespace

void bind_gram(nb::module_& m) {
    bind_class_grams<double>(m);
    bind_class_grams<float>(m);
    bind_sparse_gram<std::int32_t>(m);
    bind_sparse_gram<std::int64_t>(m);
}

}  // namespace steelyard::bind
