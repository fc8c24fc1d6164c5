#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

#include "maps.hpp"

namespace steelyard::bind {

namespace {

using Vector = Array<const double, 1>;
using Matrix = Array<const double, 2>;
using Places = Array<const std::int64_t, 1>;

}  // namespace

void bind_maps(nb::module_& m) {
    m.def(
        "map_rows",
        [](const std::string& kind, Matrix X, Vector shift, Vector scale, Matrix weights, Vector starts,
           Array<double, 2> out, double amplitude, double step, double ceiling, unsigned n_threads) {
            const FeatureMap map = checked_map(kind, shift, scale, weights, starts, amplitude, step, ceiling);
            if (X.shape(1) != map.n_features() || out.shape(0) != X.shape(0) || out.shape(1) != map.n_outputs())
                throw nb::value_error("map_rows: array shapes disagree");
            nb::gil_scoped_release unlocked;
            map_rows(map, {X.data(), X.shape(0), X.shape(1)}, out.data(), n_threads);
        },
        "kind"_a, "X"_a.noconvert(), "shift"_a.noconvert(), "scale"_a.noconvert(), "weights"_a.noconvert(),
        "starts"_a.noconvert(), "out"_a.noconvert(), "amplitude"_a, "step"_a, "ceiling"_a, "n_threads"_a = 1,
        "Writes the mapped rows to `out`. `kind` is cosine, rectified, sigmoid, halving or halving_2.");
    m.def(
        "map_sparse_rows",
        [](const std::string& kind, Vector values, Places columns, Places row_starts, Vector shift, Vector scale,
           Matrix weights, Vector starts, Array<double, 2> out, double amplitude, double step, double ceiling,
           unsigned n_threads) {
            const FeatureMap map = checked_map(kind, shift, scale, weights, starts, amplitude, step, ceiling);
            if (values.size() != columns.size() || row_starts.size() != out.shape(0) + 1 ||
                out.shape(1) != map.n_outputs())
                throw nb::value_error("map_sparse_rows: array shapes disagree");
            if (map.spec.kind == MapKind::halving || map.spec.kind == MapKind::halving_2)
                throw nb::value_error("map_sparse_rows: halving and halving_2 need dense rows");
            const auto n_values = static_cast<std::int64_t>(values.size());
            for (std::size_t i = 0; i + 1 < row_starts.size(); ++i)
                if (row_starts(i) < 0 || row_starts(i) > row_starts(i + 1) || row_starts(i + 1) > n_values)
                    throw nb::value_error("map_sparse_rows: row starts are out of order");
            for (std::size_t k = 0; k < columns.size(); ++k)
                if (columns(k) < 0 || columns(k) >= static_cast<std::int64_t>(map.n_features()))
                    throw nb::value_error("map_sparse_rows: a column is out of range");
            nb::gil_scoped_release unlocked;
            map_sparse_rows(map, span(values), span(columns), span(row_starts), out.data(), n_threads);
        },
        "kind"_a, "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(), "shift"_a.noconvert(),
        "scale"_a.noconvert(), "weights"_a.noconvert(), "starts"_a.noconvert(), "out"_a.noconvert(), "amplitude"_a,
        "step"_a, "ceiling"_a, "n_threads"_a = 1,
        "Maps the rows of a CSR matrix with sorted columns as map_rows() does. halving and halving_2 are not "
        "supported.");
    m.def(
        "round_to_step",
        [](Array<double, 2> values, double factor, double step, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            round_to_step({values.data(), values.size()}, factor, step, n_threads);
        },
        "values"_a.noconvert(), "factor"_a, "step"_a, "n_threads"_a = 1,
        "Replaces values by step * round(factor * values), where factor is a power of two.");
}

}  // namespace steelyard::bind
