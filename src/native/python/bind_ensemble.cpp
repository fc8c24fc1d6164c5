#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "arrays.hpp"
#include "ensemble/change_tests.hpp"
#include "ensemble/last_rows.hpp"
#include "ensemble/logistic_fits.hpp"
#include "ensemble/online_calibration.hpp"

namespace steelyard::bind {

namespace {

using Vector = Array<const double, 1>;
using Matrix = Array<const double, 2>;
using Codes = Array<const std::int64_t, 1>;
using Flags = Array<const bool, 1>;

template <int N, class A>
NumpyArray<double, N> copy_of(const A& values) {
    std::size_t shape[N];
    for (std::size_t axis = 0; axis < N; ++axis) shape[axis] = values.shape(axis);
    auto copy = zeros<double, N>(shape);
    std::copy_n(values.data(), values.size(), copy.data());
    return copy;
}

bool all_below(const Codes& codes, std::size_t limit) {
    return std::ranges::all_of(
        span(codes), [limit](std::int64_t code) { return code >= 0 && static_cast<std::size_t>(code) < limit; });
}

NumpyArray<std::int64_t, 1> selected_rows(const Codes& codes, std::size_t n_last,
                                          const std::vector<std::int64_t>& limits) {
    require(std::ranges::all_of(span(codes), [](std::int64_t code) { return code >= 0; }),
            "last_rows: a code is negative");
    return array_of(last_rows(span(codes), n_last, limits));
}

// -- weights of experts --------------------------------------------------------------------------

// Calibrations of all experts that have enough known scores.
class BoundCalibrations {
  public:
    BoundCalibrations(Matrix scores, std::size_t n_positive, Flags is_candidate, std::size_t min_rows,
                      double max_linear)
        : n_experts_(scores.shape(1)), n_rows_(scores.shape(0)), n_positive_(n_positive) {
        require(is_candidate.size() == n_experts_ && n_positive > 0 && n_positive < n_rows_ && min_rows > 0, kUnlike);
        nb::gil_scoped_release unlocked;
        fitted_ = fit_calibrations({rows(scores), n_positive}, span(is_candidate), min_rows, max_linear);
    }

    std::size_t size() const { return fitted_.size(); }

    NumpyArray<double, 1> auc() const {
        auto out = zeros<double, 1>({n_experts_});
        std::fill_n(out.data(), n_experts_, NAN);
        for (const ExpertCalibration& one : fitted_) out(one.expert) = one.auc;
        return out;
    }

    NumpyArray<double, 1> weights(double share, const std::tuple<double, double, double>& sharpness, double least,
                                  Vector priors) const {
        require(priors.size() == n_experts_, kUnlike);
        auto out = zeros<double, 1>({n_experts_});
        nb::gil_scoped_release unlocked;
        std::vector<double> own_priors, own(fitted_.size());
        for (const ExpertCalibration& one : fitted_) own_priors.push_back(priors(one.expert));
        const auto [auc, balanced, observed] = sharpness;
        weigh_calibrations(fitted_, n_positive_, share, {auc, balanced, observed}, least, own_priors.data(),
                           own.data());
        for (std::size_t i = 0; i < own.size(); ++i) out(fitted_[i].expert) = own[i];
        return out;
    }

    NumpyArray<double, 1> totals(Vector weights) const {
        require(weights.size() == n_experts_, kUnlike);
        auto out = zeros<double, 1>({n_rows_});
        nb::gil_scoped_release unlocked;
        for (const ExpertCalibration& one : fitted_) add_weighted(one.log_odds, weights(one.expert), out.data());
        return out;
    }

    std::pair<NumpyArray<double, 1>, NumpyArray<double, 1>> table(std::size_t expert) const {
        const auto found = std::ranges::find(fitted_, expert, &ExpertCalibration::expert);
        const std::size_t n_knots = found == fitted_.end() ? 1 : 2 * kTableExcess.size() + 1;
        auto knots = zeros<double, 1>({n_knots}), values = zeros<double, 1>({n_knots});
        if (found != fitted_.end()) calibration_table(*found, knots.data(), values.data());
        return {knots, values};
    }

  private:
    static constexpr const char* kUnlike = "ExpertCalibrations: array shapes disagree";

    std::size_t n_experts_, n_rows_, n_positive_;
    std::vector<ExpertCalibration> fitted_;
};

std::pair<double, double> bound_platt_scaling(Vector scores, std::size_t n_positive) {
    require(n_positive > 0 && n_positive < scores.size(), "platt_scaling: a class has no rows");
    nb::gil_scoped_release unlocked;
    const PlattScaling fit = platt_scaling(span(scores), n_positive);
    return {fit.slope, fit.bias};
}

NumpyArray<double, 1> bound_correction(Matrix log_odds, Codes places, Vector weights, double share, double ridge,
                                       unsigned n_steps) {
    require(places.size() == log_odds.shape(0) && weights.size() == log_odds.shape(1) && all_below(places, 2),
            "solve_correction: array shapes disagree");
    nb::gil_scoped_release unlocked;
    const std::vector<double> values =
        solve_correction({rows(log_odds), span(places), span(weights), share, ridge}, n_steps);
    nb::gil_scoped_acquire locked;
    return array_of(values);
}

// -- calibration of probabilities ----------------------------------------------------------------

using CalibrationArrays = std::tuple<NumpyArray<double, 2>, NumpyArray<double, 3>, NumpyArray<double, 1>>;

CalibrationArrays bound_learn_calibration(Matrix coefficients, Array<const double, 3> curvature, Vector losses,
                                          Vector log_odds, Flags is_positive, Vector edges, Vector half_lives,
                                          double loss_half_life, double prior_rows, double max_step, double min_slope,
                                          std::size_t block_rows) {
    const std::size_t n_lives = half_lives.size(), n = edges.size();
    require(n > 1 && n <= kMaxEdges && block_rows > 0 && coefficients.shape(0) == n_lives &&
                coefficients.shape(1) == n && curvature.shape(0) == n_lives && curvature.shape(1) == n &&
                curvature.shape(2) == n && losses.size() == n_lives && is_positive.size() == log_odds.size(),
            "learn_calibration: array shapes disagree");
    CalibrationArrays after{copy_of<2>(coefficients), copy_of<3>(curvature), copy_of<1>(losses)};
    auto& [new_coefficients, new_curvature, new_losses] = after;
    const CalibrationSpec spec{span(edges), span(half_lives), loss_half_life, prior_rows,
                               max_step,    min_slope,        block_rows};
    const UnlockedIfLong unlocked(log_odds.size() * n_lives * n * n);
    learn_calibration(spec, span(log_odds), span(is_positive),
                      {new_coefficients.data(), new_curvature.data(), new_losses.data()});
    return after;
}

NumpyArray<double, 1> bound_calibrate(Matrix coefficients, Vector losses, Vector log_odds, Vector edges) {
    require(losses.size() > 0 && coefficients.shape(0) == losses.size() && coefficients.shape(1) == edges.size() &&
                edges.size() > 1 && edges.size() <= kMaxEdges,
            "calibrate: array shapes disagree");
    auto out = zeros<double, 1>({log_odds.size()});
    const UnlockedIfLong unlocked(100 * log_odds.size() * losses.size());
    calibrate(span(edges), span(losses), coefficients.data(), span(log_odds), out.data());
    return out;
}

// -- tests for changes ---------------------------------------------------------------------------

std::pair<NumpyArray<double, 3>, NumpyArray<double, 2>> bound_p_values(Matrix X, Matrix edges, Matrix counts,
                                                                       Array<const double, 3> uniform) {
    const std::size_t n_rows = X.shape(0), n_columns = X.shape(1), n_bins = counts.shape(1);
    require(edges.shape(0) == n_columns && counts.shape(0) == n_columns && n_bins > 0 && n_bins % 2 == 0 &&
                edges.shape(1) + 1 == n_bins && uniform.shape(0) == 2 && uniform.shape(1) == n_rows &&
                uniform.shape(2) == n_columns,
            "conformal_p_values: array shapes disagree");
    auto p = zeros<double, 3>({2, n_rows, n_columns});
    auto after = copy_of<2>(counts);
    nb::gil_scoped_release unlocked;
    conformal_p_values(rows(X), {edges.data(), after.data(), n_bins}, uniform.data(), p.data());
    return {p, after};
}

NumpyArray<double, 2> bound_bet_on_columns(Matrix sums, Array<const double, 3> p, double slope, double max_sum) {
    require(sums.shape(0) == 4 && p.shape(0) == 2 && p.shape(2) == sums.shape(1),
            "bet_on_columns: array shapes disagree");
    auto after = copy_of<2>(sums);
    nb::gil_scoped_release unlocked;
    bet_on_columns(p.data(), p.shape(1), p.shape(2), slope, max_sum, after.data());
    return after;
}

std::pair<NumpyArray<double, 2>, NumpyArray<double, 1>> bound_bet_on_shares(Matrix sums, Vector counts, Codes codes,
                                                                            Matrix uniform, Vector factors,
                                                                            double max_sum) {
    require(sums.shape(0) == counts.size() && sums.shape(1) == factors.size() && uniform.shape(0) == codes.size() &&
                uniform.shape(1) == counts.size() && all_below(codes, counts.size()),
            "bet_on_shares: array shapes disagree");
    auto after = copy_of<2>(sums);
    auto new_counts = copy_of<1>(counts);
    nb::gil_scoped_release unlocked;
    bet_on_shares(span(codes), uniform.data(),
                  {span(factors), max_sum, after.data(), new_counts.data(), counts.size()});
    return {after, new_counts};
}

std::tuple<NumpyArray<double, 2>, NumpyArray<double, 2>, bool> bound_add_hits(Matrix n_rows, Matrix n_hits, Codes codes,
                                                                              Flags is_hit, Vector keep,
                                                                              double min_rows, double min_deviations,
                                                                              double min_fall) {
    const std::size_t n_classes = n_rows.shape(1);
    require(n_rows.shape(0) == 2 && n_hits.shape(0) == 2 && n_hits.shape(1) == n_classes && keep.size() == 2 &&
                is_hit.size() == codes.size() && all_below(codes, n_classes),
            "add_hits: array shapes disagree");
    auto new_rows = copy_of<2>(n_rows), new_hits = copy_of<2>(n_hits);
    const HitRates rates{new_rows.data(), new_hits.data(), n_classes};
    add_hits(span(codes), span(is_hit), span(keep), rates);
    return {new_rows, new_hits, has_fallen(rates, {min_rows, min_deviations, min_fall})};
}

}  // namespace

void bind_ensemble(nb::module_& m) {
    m.def(
        "last_rows",
        [](Codes codes, std::size_t n_last, Codes limits) {
            return selected_rows(codes, n_last, vector_of<std::int64_t>(limits));
        },
        "codes"_a.noconvert(), "n_last"_a, "limits"_a.noconvert(),
        "Return the ascending indices of the last `n_last` rows and of the last limits[code] rows of each class.");
    m.def(
        "last_rows",
        [](Codes codes, std::size_t n_last, std::int64_t per_class) {
            std::int64_t n_classes = 0;
            for (const std::int64_t code : span(codes)) n_classes = std::max(n_classes, code + 1);
            return selected_rows(codes, n_last, std::vector(static_cast<std::size_t>(n_classes), per_class));
        },
        "codes"_a.noconvert(), "n_last"_a, "per_class"_a,
        "Return the ascending indices of the last `n_last` rows and of the last `per_class` rows of each class.");
    nb::class_<BoundCalibrations>(
        m, "ExpertCalibrations",
        "Calibrations of the scores of experts to log-odds. An expert is calibrated if it is a candidate and has "
        "`min_rows` known scores of each class. Positive rows come first.")
        .def(nb::init<Matrix, std::size_t, Flags, std::size_t, double>(), "scores"_a.noconvert(), "n_positive"_a,
             "is_candidate"_a.noconvert(), "min_rows"_a, "max_linear"_a)
        .def("__len__", &BoundCalibrations::size)
        .def("auc", &BoundCalibrations::auc, "Return the AUC of each expert, NaN without calibration.")
        .def("weights", &BoundCalibrations::weights, "share"_a, "sharpness"_a, "least"_a, "priors"_a.noconvert(),
             "Return weights with sum 1: prior * exp(s[0] * AUC - s[1] * balanced loss - s[2] * relative observed "
             "loss), or 0 without calibration, below chance, or below `least` times the largest weight.")
        .def("totals", &BoundCalibrations::totals, "weights"_a.noconvert(),
             "Return the weighted sum of the log-odds of each row.")
        .def("table", &BoundCalibrations::table, "expert"_a,
             "Return knots and values of the calibration of an expert; one knot without calibration.");
    m.def(
        "platt_scaling", &bound_platt_scaling, "scores"_a.noconvert(), "n_positive"_a,
        "Return slope and bias that convert scores to log-odds for equally frequent classes (Platt scaling). Positive "
        "rows come first.");
    m.def("solve_correction", &bound_correction, "log_odds"_a.noconvert(), "places"_a.noconvert(),
          "weights"_a.noconvert(), "share"_a, "ridge"_a, "n_steps"_a,
          "Return the correction of the weights by ridge logistic regression. `places` are 0 or 1, at least one of "
          "each.");
    m.def("learn_calibration", &bound_learn_calibration, "coefficients"_a.noconvert(), "curvature"_a.noconvert(),
          "losses"_a.noconvert(), "log_odds"_a, "is_positive"_a, "edges"_a.noconvert(), "half_lives"_a.noconvert(),
          "loss_half_life"_a, "prior_rows"_a, "max_step"_a, "min_slope"_a, "block_rows"_a,
          "Return coefficients, second derivatives and losses after labelled rows.");
    m.def("calibrate", &bound_calibrate, "coefficients"_a.noconvert(), "losses"_a.noconvert(), "log_odds"_a.noconvert(),
          "edges"_a.noconvert(),
          "Return the log-odds of the mean probability of the calibrations, weighted by exp(-loss).");
    m.def(
        "add_hits", &bound_add_hits, "rows"_a.noconvert(), "hits"_a.noconvert(), "codes"_a.noconvert(),
        "is_hit"_a.noconvert(), "keep"_a.noconvert(), "min_rows"_a, "min_deviations"_a, "min_fall"_a,
        "Return the decayed numbers of rows and hits of each class after labelled rows, and whether the short-term hit "
        "rate has fallen below the long-term one.");
    m.def(
        "conformal_p_values", &bound_p_values, "X"_a.noconvert(), "edges"_a.noconvert(), "counts"_a.noconvert(),
        "uniform"_a.noconvert(),
        "Return smoothed p-values of the bins of new rows and of the distances of these bins from the middle, and the "
        "new counts.");
    m.def("bet_on_columns", &bound_bet_on_columns, "sums"_a.noconvert(), "p"_a.noconvert(), "slope"_a, "max_sum"_a,
          "Return the Shiryaev-Roberts sums of columns, updated with the p-values of conformal_p_values().");
    m.def("bet_on_shares", &bound_bet_on_shares, "sums"_a.noconvert(), "counts"_a.noconvert(), "codes"_a.noconvert(),
          "uniform"_a.noconvert(), "factors"_a.noconvert(), "max_sum"_a,
          "Return the Shiryaev-Roberts sums of class shares and the class counts, updated with new rows.");
}

}  // namespace steelyard::bind
