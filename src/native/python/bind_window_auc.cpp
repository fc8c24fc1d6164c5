#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "arrays.hpp"
#include "metrics/window_auc.hpp"

namespace steelyard::bind {

namespace {

void push(AucWindow& self, Array<const std::int32_t, 1> codes, Array<const double, 2> scores) {
    if (scores.shape(0) != codes.size() || scores.shape(1) != self.n_columns())
        throw nb::value_error("AucWindow.push: array shapes disagree");
    const auto n_classes = static_cast<std::int32_t>(self.n_classes());
    if (std::ranges::any_of(span(codes), [=](std::int32_t code) { return code < 0 || code >= n_classes; }))
        throw nb::value_error("AucWindow.push: a code is out of range");
    if (std::any_of(scores.data(), scores.data() + scores.size(), [](double score) { return std::isnan(score); }))
        throw nb::value_error("AucWindow.push: a score is NaN");
    nb::gil_scoped_release unlocked;
    self.push(span(codes), scores.data());
}

NumpyArray<std::int64_t, 1> counts(const AucWindow& self) {
    auto copy = zeros<std::int64_t, 1>({self.n_classes()});
    std::ranges::copy(self.counts(), copy.data());
    return copy;
}

NumpyArray<std::int64_t, 2> doubled_wins(const AucWindow& self) {
    auto wins = zeros<std::int64_t, 2>({self.n_columns(), self.n_columns()});
    self.doubled_wins(wins.data());
    return wins;
}

std::pair<NumpyArray<std::int32_t, 1>, NumpyArray<double, 2>> content(const AucWindow& self) {
    auto codes = zeros<std::int32_t, 1>({self.size()});
    auto scores = zeros<double, 2>({self.size(), self.n_columns()});
    self.content(codes.data(), scores.data());
    return {codes, scores};
}

}  // namespace

void bind_window_auc(nb::module_& m) {
    nb::class_<AucWindow>(
        m, "AucWindow", "The last `window` scored rows of a stream, and counts of correctly ordered pairs among them.")
        .def(
            "__init__",
            [](AucWindow* self, std::size_t window, std::size_t n_columns) {
                if (window == 0 || window > UINT32_MAX || n_columns == 0 || n_columns > 512)
                    throw nb::value_error("AucWindow: window or number of columns out of range");
                new (self) AucWindow(window, n_columns);
            },
            "window"_a, "n_columns"_a = 1)
        .def("push", &push, "codes"_a.noconvert(), "scores"_a.noconvert(),
             "Append rows. The oldest rows leave the window.")
        .def("clear", &AucWindow::clear, "Forget all rows.")
        .def("counts", &counts, "Return the number of rows of each class in the window.")
        .def("doubled_wins", &doubled_wins,
             "Return, at [i, j], twice the number of pairs in which a row of class i scores higher in column i than a "
             "row of class j. A tie counts as half a pair. With one column, [0, 0] counts pairs of class 1 over class "
             "0.")
        .def("content", &content, "Return the codes and scores of the rows in the window, oldest row first.")
        .def("__len__", &AucWindow::size);
}

}  // namespace steelyard::bind
