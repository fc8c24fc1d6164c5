#include "steelyard/planes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/simd.hpp"

namespace steelyard {

namespace {

// The penalty |scale * w|^2, and (b - center'w)^2 if the intercept is penalised.
struct Penalty {
    std::vector<double> scale, center;
    bool intercept;
};

std::vector<double> sums_of_all(const PlaneSums& sums) {
    std::vector<double> all(sums.n_features(), 0.0);
    for (std::size_t c = 0; c < sums.n_classes(); ++c)
        for (std::size_t j = 0; j < all.size(); ++j) all[j] += sums.sums[c * all.size() + j];
    return all;
}

Penalty penalty_of(const PlaneSums& sums, const PlaneRule& rule, const std::vector<double>& all, double n_rows) {
    constexpr double eps = std::numeric_limits<double>::epsilon();
    const std::size_t d = sums.n_features();
    Penalty penalty{std::vector<double>(d), std::vector<double>(d), rule.penalize_intercept};
    for (std::size_t j = 0; j < d; ++j) {
        if (!rule.standardize) {
            penalty.scale[j] = 1.0 / sums.unit[j];
            penalty.center[j] = -sums.origin[j] / sums.unit[j];
            continue;
        }
        const double mean = all[j] / n_rows;
        // Differences near the resolution of the values themselves are those of one constant, computed twice.
        const double resolution = 4.0 * eps * (sums.origin[j] / sums.unit[j] + mean);
        const double variance = sums.variance[j];
        penalty.scale[j] = variance > 0.0 && variance > resolution * resolution ? std::sqrt(variance) : 1.0;
        penalty.center[j] = mean;
    }
    return penalty;
}

void add_penalty(const Penalty& penalty, double factor, bool has_intercept, double* matrix, std::size_t size) {
    const std::size_t d = penalty.scale.size();
    if (has_intercept && penalty.intercept) {
        for (std::size_t i = 0; i < d; ++i)
            for (std::size_t j = 0; j <= i; ++j) matrix[i * size + j] += factor * penalty.center[i] * penalty.center[j];
        for (std::size_t j = 0; j < d; ++j) matrix[d * size + j] -= factor * penalty.center[j];
        matrix[d * size + d] += factor;
    }
    for (std::size_t j = 0; j < d; ++j) matrix[j * size + j] += factor * penalty.scale[j] * penalty.scale[j];
}

// One plane's system, and its solution [w; b].
class Plane {
  public:
    Plane(const PlaneSums& sums, const PlaneRule& rule, const Penalty& penalty, const std::vector<double>& all,
          double n_rows)
        : sums_(sums),
          rule_(rule),
          penalty_(penalty),
          all_(all),
          n_rows_(n_rows),
          d_(sums.n_features()),
          size_(rule.pairs ? d_ : d_ + 1),
          matrix_((d_ + 1) * (d_ + 1)),
          solution_(d_ + 1) {}

    bool solve(std::size_t plane) {
        positive_ = sums_.positive(plane);
        count_ = sums_.counts[positive_];
        rest_ = n_rows_ - count_;
        if (rule_.pairs)
            set_pairs();
        else
            set_margin();
        add_penalty(penalty_, 1.0 / rule_.C, !rule_.pairs, matrix_.data(), size_);
        const FactorLoops& loops = steelyard::loops().factor;
        if (!loops.factor(matrix_.data(), size_, size_)) return false;
        loops.solve(matrix_.data(), size_, size_, solution_.data());
        if (rule_.pairs) solution_[d_] = 0.0;
        look_at_scores();
        return true;
    }

    // Returns the slope of the log-odds.
    double finish(double* coef, double* intercept) const {
        const bool one_class = sums_.n_classes() == 1;
        const double cut = rule_.pairs && !one_class ? 0.5 * (means_[0] + means_[1]) : 0.0;
        double at_origin = 0.0;
        for (std::size_t j = 0; j < d_; ++j) {
            coef[j] = solution_[j] / sums_.unit[j];
            at_origin += coef[j] * sums_.origin[j];
        }
        *intercept = -at_origin - solution_[d_] - cut;
        const double spread = 0.5 * (variances_[0] + variances_[1]);
        const double slope = spread > 0.0 ? (means_[0] - means_[1]) / spread : std::numeric_limits<double>::infinity();
        return std::clamp(slope, 1e-9, 1e9);
    }

  private:
    const double* sum_of(std::size_t c) const { return sums_.sums + c * d_; }

    // share * total + (1 - 2 share) * own for balanced weights, total for equal ones; no rest, no weights.
    void set_margin() {
        const bool alone = sums_.n_classes() == 1;
        const double share = count_ / n_rows_;
        const double a = rule_.balanced && !alone ? share : 1.0;
        const double kappa = rule_.balanced && !alone ? 1.0 - 2.0 * share : 0.0;
        const double* own = kappa == 0.0 ? sums_.total : sums_.matrices[positive_];
        for (std::size_t i = 0; i < size_; ++i)
            for (std::size_t j = 0; j <= i; ++j) {
                const std::size_t at = i * size_ + j;
                matrix_[at] = a * sums_.total[at] + kappa * own[at];
            }
        const double mine = rule_.balanced ? 1.0 : 2.0, all = rule_.balanced ? share : 1.0;
        for (std::size_t j = 0; j < d_; ++j) solution_[j] = mine * sum_of(positive_)[j] - all * all_[j];
        solution_[d_] = -mine * count_ + all * n_rows_;
    }

    // Scatter of both sides and the difference of their means; nothing to rank against leaves the penalty alone.
    void set_pairs() {
        std::fill(matrix_.begin(), matrix_.end(), 0.0);
        std::fill(solution_.begin(), solution_.end(), 0.0);
        if (sums_.n_classes() == 1) return;
        const double* own = sums_.matrices[positive_];
        std::vector<double> mine(d_), rest(d_);
        for (std::size_t j = 0; j < d_; ++j) {
            mine[j] = sum_of(positive_)[j] / count_;
            rest[j] = (all_[j] - sum_of(positive_)[j]) / rest_;
            solution_[j] = mine[j] - rest[j];
        }
        for (std::size_t i = 0; i < d_; ++i)
            for (std::size_t j = 0; j <= i; ++j) {
                const std::size_t from = i * (d_ + 1) + j;
                matrix_[i * d_ + j] = own[from] / count_ + (sums_.total[from] - own[from]) / rest_ - mine[i] * mine[j] -
                                      rest[i] * rest[j] + solution_[i] * solution_[j];
            }
    }

    // Mean and variance of the scores e'u of the class and of the rest.
    void look_at_scores() {
        const FactorLoops& loops = steelyard::loops().factor;
        const double* u = solution_.data();
        const std::size_t size = d_ + 1;
        double own_sum = -count_ * u[d_], all_sum = -n_rows_ * u[d_];
        for (std::size_t j = 0; j < d_; ++j) {
            own_sum += sum_of(positive_)[j] * u[j];
            all_sum += all_[j] * u[j];
        }
        const double all = loops.quadratic(sums_.total, size, size, u);
        const double own = sums_.n_classes() == 1 ? all : loops.quadratic(sums_.matrices[positive_], size, size, u);
        const double sums[2] = {own_sum, all_sum - own_sum}, squares[2] = {own, all - own};
        const double counts[2] = {count_, rest_};
        for (std::size_t side = 0; side < 2; ++side) {
            means_[side] = counts[side] > 0.0 ? sums[side] / counts[side] : 0.0;
            const double square = counts[side] > 0.0 ? squares[side] / counts[side] : 0.0;
            variances_[side] = std::max(square - means_[side] * means_[side], 0.0);
        }
    }

    const PlaneSums& sums_;
    const PlaneRule& rule_;
    const Penalty& penalty_;
    const std::vector<double>& all_;
    const double n_rows_;
    const std::size_t d_, size_;
    std::size_t positive_ = 0;
    double count_ = 0.0, rest_ = 0.0;
    std::vector<double> matrix_, solution_;
    double means_[2] = {}, variances_[2] = {};
};

}  // namespace

bool solve_planes(const PlaneSums& sums, const PlaneRule& rule, double* coef, double* intercept, double* slope) {
    double n_rows = 0.0;
    for (const double count : sums.counts) n_rows += count;
    const std::vector<double> all = sums_of_all(sums);
    const Penalty penalty = penalty_of(sums, rule, all, n_rows);
    Plane plane(sums, rule, penalty, all, n_rows);
    *slope = 0.0;
    for (std::size_t p = 0; p < sums.n_planes(); ++p) {
        if (!plane.solve(p)) return false;
        *slope += plane.finish(coef + p * sums.n_features(), intercept + p) / static_cast<double>(sums.n_planes());
    }
    return true;
}

}  // namespace steelyard
