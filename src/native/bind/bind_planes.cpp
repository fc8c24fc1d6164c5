#include <nanobind/stl/vector.h>

#include <cmath>
#include <vector>

#include "arrays.hpp"
#include "held_sums.hpp"
#include "steelyard/exact_sums.hpp"
#include "steelyard/planes.hpp"

namespace steelyard::bind {

namespace {

// What a view shows, in the form that the rule reads.
class ViewedSums {
  public:
    ViewedSums(const ExactView& view, std::size_t n_classes)
        : d_(view.origin().size()), unit_(d_), counts_(n_classes), sums_(n_classes * d_), places_(n_classes, nullptr) {
        const std::size_t size = (d_ + 1) * (d_ + 1);
        for (std::size_t j = 0; j < d_; ++j) unit_[j] = std::ldexp(1.0, view.units()[j]);
        for (std::size_t k = 0; k < n_classes; ++k) {
            counts_[k] = view.count(k);
            view.sums(k, sums_.data() + k * d_);
        }
        const std::size_t n_planes = n_classes > 2 ? n_classes : n_classes - 1;
        matrices_.resize((1 + n_planes) * size);
        view.total(matrices_.data());
        for (std::size_t p = 0; p < n_planes; ++p) {
            const std::size_t k = n_classes > 2 ? p : n_classes - 1;
            places_[k] = matrices_.data() + (1 + p) * size;
            view.matrix(k, matrices_.data() + (1 + p) * size);
        }
    }

    PlaneSums of(const ExactView& view) const {
        return {view.origin(), unit_, view.variance(), counts_, sums_.data(), matrices_.data(), places_};
    }

  private:
    std::size_t d_;
    std::vector<double> unit_, counts_, sums_, matrices_;
    std::vector<const double*> places_;
};

}  // namespace

void bind_planes(nb::module_& m) {
    m.def(
        "solve_planes",
        [](const ExactSums& held, std::vector<std::int32_t> slots, Array<double, 2> coef, Array<double, 1> intercept,
           double C, bool balanced, bool standardize, bool pairs, bool penalize_intercept, unsigned n_threads) {
            const std::size_t n_planes = slots.size() > 2 ? slots.size() : 1;
            const std::size_t d = held.look([](const ExactState& state) { return state.n_features; });
            if (slots.empty() || coef.shape(0) != n_planes || coef.shape(1) != d || intercept.size() != n_planes)
                throw nb::value_error("solve_planes: array shapes disagree");
            check_present(slots);
            double slope = 0.0;
            nb::gil_scoped_release unlocked;
            const ExactView view = held.view(std::move(slots), n_threads);
            const ViewedSums sums(view, view.n_classes());
            const PlaneRule rule{C, balanced, standardize, pairs, penalize_intercept};
            return solve_planes(sums.of(view), rule, coef.data(), intercept.data(), &slope) ? slope : -1.0;
        },
        "sums"_a, "slots"_a, "coef"_a.noconvert(), "intercept"_a.noconvert(), "C"_a, "balanced"_a, "standardize"_a,
        "pairs"_a, "penalize_intercept"_a, "n_threads"_a = 1,
        "Writes the planes of the classes in these slots and returns the slope of the log-odds; negative if a matrix "
        "is not "
        "positive definite.");
}

}  // namespace steelyard::bind
