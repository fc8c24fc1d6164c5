#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>

#include "arrays.hpp"
#include "trees/piecewise.hpp"

namespace steelyard::bind {

namespace {

NumpyArray<double, 2> rank_rows(Array<const double, 2> X, Array<const double, 2> knots, Array<const double, 2> values,
                                Array<const double, 2> slopes) {
    for (const auto& part : {knots, values, slopes})
        require(part.shape(0) == knots.shape(0) && part.shape(0) > 0 && part.shape(1) == X.shape(1),
                "rank_rows: array shapes disagree");
    auto out = zeros<double, 2>({X.shape(0), X.shape(1)});
    nb::gil_scoped_release unlocked;
    apply_pieces(rows(X), {knots.data(), values.data(), slopes.data(), knots.shape(0)}, out.data());
    return out;
}

NumpyArray<double, 1> weigh_lookups(Array<const double, 2> X, Array<const double, 1> knots,
                                    Array<const double, 1> values, Array<const std::int64_t, 1> starts,
                                    Array<const double, 1> weights) {
    const char* const unlike = "weigh_lookups: array shapes disagree";
    require(weights.size() == X.shape(1) && starts.size() == weights.size() + 1 && knots.size() == values.size(),
            unlike);
    for (std::size_t f = 0; f < weights.size(); ++f) require(starts(f) < starts(f + 1), unlike);
    require(starts(0) == 0 && starts(weights.size()) == static_cast<std::int64_t>(knots.size()), unlike);
    auto out = zeros<double, 1>({X.shape(0)});
    nb::gil_scoped_release unlocked;
    sum_lookups(rows(X), {span(knots), span(values), span(weights), span(starts)}, out.data());
    return out;
}

// For each row of `ranked`, returns the midranks of the first n_known scores, followed by 0.5.
// Also returns twice the number of correctly ordered pairs.
std::tuple<NumpyArray<double, 2>, NumpyArray<std::int64_t, 1>> bound_rank_levels(Array<const double, 2> ranked,
                                                                                 Array<const std::int64_t, 2> order,
                                                                                 Array<const std::int64_t, 1> n_known,
                                                                                 std::size_t n_positive) {
    const std::size_t n_lines = ranked.shape(0), n = ranked.shape(1);
    require(order.shape(0) == n_lines && order.shape(1) == n && n_known.size() == n_lines,
            "rank_levels: array shapes disagree");
    for (const std::int64_t known : span(n_known))
        require(known >= 0 && known <= static_cast<std::int64_t>(n),
                "rank_levels: n_known exceeds the number of scores");
    for (std::size_t at = 0; at < n_lines * n; ++at)
        require(order.data()[at] >= 0, "rank_levels: a row is out of range");
    auto levels = zeros<double, 2>({n_lines, n});
    auto in_order = zeros<std::int64_t, 1>({n_lines});
    nb::gil_scoped_release unlocked;
    for (std::size_t line = 0; line < n_lines; ++line) {
        const auto known = static_cast<std::size_t>(n_known(line));
        double* mine = levels.data() + line * n;
        in_order(line) =
            rank_levels({{ranked.data() + line * n, known}, {order.data() + line * n, known}, n_positive}, mine);
        std::fill(mine + known, mine + n, 0.5);
    }
    return {levels, in_order};
}

}  // namespace

void bind_piecewise(nb::module_& m) {
    m.def("rank_rows", &rank_rows, "X"_a.noconvert(), "knots"_a.noconvert(), "values"_a.noconvert(),
          "slopes"_a.noconvert(),
          "Apply one piecewise linear function per column to rows. A function is constant below its first knot.");
    m.def("weigh_lookups", &weigh_lookups, "X"_a.noconvert(), "knots"_a.noconvert(), "values"_a.noconvert(),
          "starts"_a.noconvert(), "weights"_a.noconvert(),
          "Return for each row the weighted sum of piecewise linear functions of its values. Functions are constant "
          "outside their knots, and NaN values contribute nothing.");
    m.def(
        "rank_levels", &bound_rank_levels, "ranked"_a.noconvert(), "order"_a.noconvert(), "n_known"_a.noconvert(),
        "n_positive"_a,
        "Return, for each row of ascending scores, the midranks of the first n_known scores averaged over both classes "
        "(0.5 for all others), and twice the number of correctly ordered pairs.");
}

}  // namespace steelyard::bind
