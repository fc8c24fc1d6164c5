#include <cstdint>
#include <string>

#include "arrays.hpp"
#include "proximal/scores.hpp"

namespace steelyard::bind {

namespace {

template <class T>
Planes checked_planes(const Array<const T, 2>& X, const Array<const double, 2>& coef,
                      const Array<const double, 1>& intercept, const char* function) {
    if (coef.shape(0) != intercept.size() || intercept.size() == 0 || coef.shape(1) != X.shape(1))
        throw nb::value_error((std::string(function) + ": array shapes disagree").c_str());
    return {{coef.data(), coef.size()}, {intercept.data(), intercept.size()}};
}

template <class T>
void bind_rows_of(nb::module_& m) {
    m.def(
        "linear_scores",
        [](Array<const T, 2> X, Array<const double, 2> coef, Array<const double, 1> intercept, Array<double, 2> scores,
           unsigned n_threads) {
            const Planes planes = checked_planes(X, coef, intercept, "linear_scores");
            if (scores.shape(0) != X.shape(0) || scores.shape(1) != intercept.size())
                throw nb::value_error("linear_scores: array shapes disagree");
            const UnlockedIfLong unlocked(X.size() * intercept.size());
            return linear_scores<T>({X.data(), X.shape(0), X.shape(1)}, planes, scores.data(), n_threads);
        },
        "X"_a.noconvert(), "coef"_a.noconvert(), "intercept"_a.noconvert(), "scores"_a.noconvert(), "n_threads"_a = 1,
        "Writes X @ coef.T + intercept to `scores` and returns whether all scores are finite.");
    m.def(
        "linear_labels",
        [](Array<const T, 2> X, Array<const double, 2> coef, Array<const double, 1> intercept,
           Array<const std::uint64_t, 1> labels_of, Array<std::uint64_t, 1> labels, unsigned n_threads) {
            const Planes planes = checked_planes(X, coef, intercept, "linear_labels");
            const std::size_t n_sides = intercept.size() == 1 ? 2 : intercept.size();
            if (labels.size() != X.shape(0) || labels_of.size() != n_sides)
                throw nb::value_error("linear_labels: array shapes disagree");
            const UnlockedIfLong unlocked(X.size() * intercept.size());
            return linear_labels<T>({X.data(), X.shape(0), X.shape(1)}, planes, span(labels_of), labels.data(),
                                    n_threads);
        },
        "X"_a.noconvert(), "coef"_a.noconvert(), "intercept"_a.noconvert(), "labels_of"_a.noconvert(),
        "labels"_a.noconvert(), "n_threads"_a = 1,
        "Writes the label of the plane with the highest score to `labels`. With one plane, writes labels_of[1] if the "
        "score is positive, else labels_of[0]. Returns whether all scores are finite. Labels are items of 8 bytes.");
}

}  // namespace

void bind_scores(nb::module_& m) {
    bind_rows_of<double>(m);
    bind_rows_of<float>(m);
}

}  // namespace steelyard::bind
