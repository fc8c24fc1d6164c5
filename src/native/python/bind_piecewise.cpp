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

using Vector = Array<const double, 1>;
using KnotStarts = Array<const std::int64_t, 1>;

void check_lookups(const Array<const double, 2>& X, const Vector& knots, const Vector& values,
                   const KnotStarts& starts) {
    const char* const unlike = "lookups: array shapes disagree";
    const std::size_t n = X.shape(1);
    require(starts.size() == n + 1 && knots.size() == values.size(), unlike);
    for (std::size_t f = 0; f < n; ++f) require(starts(f) < starts(f + 1), unlike);
    require(starts(0) == 0 && starts(n) == static_cast<std::int64_t>(knots.size()), unlike);
}

NumpyArray<double, 2> bound_apply_lookups(Array<const double, 2> X, Vector knots, Vector values, KnotStarts starts) {
    check_lookups(X, knots, values, starts);
    auto out = zeros<double, 2>({X.shape(0), X.shape(1)});
    nb::gil_scoped_release unlocked;
    apply_lookups(rows(X), {span(knots), span(values), {}, span(starts)}, out.data());
    return out;
}

NumpyArray<double, 1> weigh_lookups(Array<const double, 2> X, Vector knots, Vector values, KnotStarts starts,
                                    Vector weights) {
    check_lookups(X, knots, values, starts);
    require(weights.size() == X.shape(1), "weigh_lookups: array shapes disagree");
    auto out = zeros<double, 1>({X.shape(0)});
    nb::gil_scoped_release unlocked;
    sum_lookups(rows(X), {span(knots), span(values), span(weights), span(starts)}, out.data());
    return out;
}

}  // namespace

void bind_piecewise(nb::module_& m) {
    m.def("rank_rows", &rank_rows, "X"_a.noconvert(), "knots"_a.noconvert(), "values"_a.noconvert(),
          "slopes"_a.noconvert(),
          "Apply one piecewise linear function per column to rows. A function is constant below its first knot.");
    m.def("apply_lookups", &bound_apply_lookups, "X"_a.noconvert(), "knots"_a.noconvert(), "values"_a.noconvert(),
          "starts"_a.noconvert(),
          "Apply one piecewise linear function per column to rows. The result is 0 for NaN and for functions with one "
          "knot.");
    m.def("weigh_lookups", &weigh_lookups, "X"_a.noconvert(), "knots"_a.noconvert(), "values"_a.noconvert(),
          "starts"_a.noconvert(), "weights"_a.noconvert(),
          "Return for each row the weighted sum of piecewise linear functions of its values. Functions are constant "
          "outside their knots, and NaN values contribute nothing.");
}

}  // namespace steelyard::bind
