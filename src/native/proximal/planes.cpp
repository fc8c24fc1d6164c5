#include "proximal/planes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "proximal/normal_threshold.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Several systems are solved at once, one per SIMD lane, from kFewestPlanes planes and up to kMostFeatures features.
constexpr std::size_t kFewestPlanes = 4, kMostFeatures = 64;

// Sums of a view in the coordinates z = (x - origin) / unit.
// Matrices are lower triangles of sums of e e', where e = [z, -1].
struct PlaneSums {
    const ExactView& view;
    std::vector<double> unit, counts, sums;  // `sums` are the sums of z, class by class
    // Factors that convert coordinates of the view to coordinates z. Empty if all factors are 1.
    std::vector<double> smaller;
    AlignedBuffer<double> total;  // matrix of the rows of all classes
    std::vector<double> all;      // sums of z over the rows of all classes
    double n_rows = 0.0;
    // Same as `total` and `all`, with the rows of each class multiplied by the factor of the class.
    // The weighted arrays are empty if there are no class factors.
    AlignedBuffer<double> weighted_total;
    std::vector<double> weighted_all;
    double weighted_rows = 0.0;

    PlaneSums(const ExactView& source, bool standardize, const std::vector<double>& factors)
        : view(source),
          unit(n_features()),
          counts(n_classes()),
          sums(n_classes() * n_features()),
          total(aligned_buffer<double>(size() * size())),
          all(n_features()) {
        const std::size_t d = n_features();
        for (std::size_t j = 0; j < d; ++j) unit[j] = std::ldexp(1.0, view.units()[j]);
        if (!standardize) keep_large_units();
        for (std::size_t k = 0; k < n_classes(); ++k) {
            counts[k] = view.count(k);
            n_rows += counts[k];
            double* mine = sums.data() + k * d;
            view.sums(k, mine);
            for (std::size_t j = 0; j < d; ++j) {
                if (!smaller.empty()) mine[j] *= smaller[j];
                all[j] += mine[j];
            }
        }
        view.total(total.get());
        make_smaller(total.get());
        if (!factors.empty()) weigh(factors);
    }

    // Matrix, sums and number of the rows after multiplication by the class factors, if there are any.
    const double* fitted() const { return weighted_all.empty() ? total.get() : weighted_total.get(); }
    double fitted_sum(std::size_t j) const { return weighted_all.empty() ? all[j] : weighted_all[j]; }
    double fitted_rows() const { return weighted_all.empty() ? n_rows : weighted_rows; }

    // Writes the matrix of one class.
    void matrix(std::size_t k, double* out) const {
        view.matrix(k, out);
        make_smaller(out);
    }

    std::size_t n_features() const { return view.origin().size(); }
    std::size_t size() const { return n_features() + 1; }
    std::size_t n_classes() const { return view.n_classes(); }
    std::size_t n_planes() const { return n_planes_of(n_classes()); }
    std::size_t positive(std::size_t plane) const { return n_classes() > 2 ? plane : n_classes() - 1; }
    const double* sum_of(std::size_t k) const { return sums.data() + k * n_features(); }

  private:
    void weigh(const std::vector<double>& factors) {
        const std::size_t d = n_features(), entries = size() * size();
        weighted_total = aligned_buffer<double>(entries);
        std::fill_n(weighted_total.get(), entries, 0.0);
        weighted_all.assign(d, 0.0);
        std::vector<double> own(entries);
        for (std::size_t k = 0; k < n_classes(); ++k) {
            matrix(k, own.data());
            for (std::size_t i = 0; i <= d; ++i)
                for (std::size_t j = 0; j <= i; ++j) weighted_total[i * size() + j] += factors[k] * own[i * size() + j];
            for (std::size_t j = 0; j < d; ++j) weighted_all[j] += factors[k] * sum_of(k)[j];
            weighted_rows += factors[k] * counts[k];
        }
    }

    // The penalty of raw features is 1 / unit^2, which overflows for small units.
    // Units below 1 are therefore replaced by 1, and tiny features become practically constant.
    void keep_large_units() {
        if (std::all_of(unit.begin(), unit.end(), [](double u) { return u >= 1.0; })) return;
        smaller.resize(unit.size());
        for (std::size_t j = 0; j < unit.size(); ++j) {
            smaller[j] = std::min(unit[j], 1.0);
            unit[j] = std::max(unit[j], 1.0);
        }
    }
    void make_smaller(double* lower) const {
        if (smaller.empty()) return;
        const std::size_t d = n_features();
        for (std::size_t i = 0; i <= d; ++i)
            for (std::size_t j = 0; j <= i && j < d; ++j)
                lower[i * (d + 1) + j] *= (i < d ? smaller[i] : 1.0) * smaller[j];
    }
};

// Penalty |scale * w|^2 of the weights w, plus (b - center'w)^2 if the intercept b is penalized.
struct Penalty {
    std::vector<double> scale, center;
    bool intercept;
};

constexpr double kLeastScale = 0x1p-200;  // a smaller penalty has no effect in floating-point arithmetic

Penalty penalty_of(const PlaneSums& sums, const PlaneRule& rule) {
    constexpr double eps = std::numeric_limits<double>::epsilon();
    const std::size_t d = sums.n_features();
    const std::vector<double>& origin = sums.view.origin();
    Penalty penalty{std::vector<double>(d), std::vector<double>(d), rule.penalize_intercept};
    for (std::size_t j = 0; j < d; ++j) {
        if (!rule.standardize) {
            penalty.scale[j] = std::max(1.0 / sums.unit[j], kLeastScale);
            penalty.center[j] = -origin[j] / sums.unit[j];
            continue;
        }
        const double mean = sums.all[j] / sums.n_rows;
        // A deviation near the floating-point resolution of the values is the rounding error of a constant feature.
        const double resolution = 4.0 * eps * (origin[j] / sums.unit[j] + mean);
        const double variance = sums.view.variance()[j];
        penalty.scale[j] = variance > 0.0 && variance > resolution * resolution ? std::sqrt(variance) : 1.0;
        penalty.center[j] = mean;
    }
    return penalty;
}

void add_penalty(const Penalty& penalty, double factor, bool has_intercept, double* matrix, std::size_t stride) {
    const std::size_t d = penalty.scale.size();
    if (has_intercept && penalty.intercept) {
        for (std::size_t i = 0; i < d; ++i)
            for (std::size_t j = 0; j <= i; ++j)
                matrix[i * stride + j] += factor * penalty.center[i] * penalty.center[j];
        for (std::size_t j = 0; j < d; ++j) matrix[d * stride + j] -= factor * penalty.center[j];
        matrix[d * stride + d] += factor;
    }
    for (std::size_t j = 0; j < d; ++j) matrix[j * stride + j] += factor * penalty.scale[j] * penalty.scale[j];
}

// Linear system for targets +1 and -1. Its matrix is share * total + own_share * (matrix of the positive class).
// With balanced weights, share is the share of positive rows and own_share is 1 - 2 share. Otherwise they are 1 and 0.
// If there is only one class, all weights are zero.
struct Margin {
    double share = 1.0, own_share = 0.0, mine = 2.0, others = 1.0;

    Margin(const PlaneSums& sums, const PlaneRule& rule, std::size_t positive) {
        if (!rule.factors.empty()) mine = 2.0 * rule.factors[positive];
        if (!rule.balanced) return;
        const double part = sums.counts[positive] / sums.n_rows;
        mine = 1.0;
        others = part;
        if (sums.n_classes() == 1) return;
        share = part;
        own_share = 1.0 - 2.0 * part;
    }
    // Returns coordinate j of the right-hand side.
    double right(const PlaneSums& sums, std::size_t positive, std::size_t j) const {
        if (j == sums.n_features()) return -mine * sums.counts[positive] + others * sums.fitted_rows();
        return mine * sums.sum_of(positive)[j] - others * sums.fitted_sum(j);
    }
};

// Means and variances of the scores e'u: index 0 is the positive class, index 1 are all other classes together.
struct Moments {
    double means[2], variances[2];

    Moments(const PlaneSums& sums, std::size_t positive, double own_sum, double all_sum, double own, double all) {
        const double both[2] = {own_sum, all_sum - own_sum}, squares[2] = {own, all - own};
        const double counts[2] = {sums.counts[positive], sums.n_rows - sums.counts[positive]};
        for (std::size_t side = 0; side < 2; ++side) {
            means[side] = counts[side] > 0.0 ? both[side] / counts[side] : 0.0;
            const double square = counts[side] > 0.0 ? squares[side] / counts[side] : 0.0;
            variances[side] = std::max(square - means[side] * means[side], 0.0);
        }
    }
    // Returns the moments of leave-one-out scores, given the mean leverage of each of the two groups of rows.
    // The leave-one-out score of ridge regression for target y and score s is y - (y - s) / (1 - leverage).
    Moments left_out(const double (&leverages)[2]) const {
        constexpr double most = 0.95;  // limit of leverages: the only row of a class may have leverage 1
        Moments moments = *this;
        for (std::size_t side = 0; side < 2; ++side) {
            const double kept = 1.0 - std::clamp(leverages[side], 0.0, most), target = side == 0 ? 1.0 : -1.0;
            moments.means[side] = target - (target - means[side]) / kept;
            moments.variances[side] = variances[side] / (kept * kept);
        }
        return moments;
    }
    double gmean_cut() const { return normal_gmean_threshold({means[1], variances[1]}, {means[0], variances[0]}); }
    double slope() const {  // returns the slope of the log-odds
        constexpr double least = 1e-9, rounding = 1e-12;
        const double gap = means[0] - means[1], spread = 0.5 * (variances[0] + variances[1]);
        // The plane of a class with weight zero gives all rows the same score, so the gap is only a rounding error.
        if (std::abs(gap) <= rounding * std::max(std::abs(means[0]), std::abs(means[1]))) return least;
        const double slope = spread > 0.0 ? gap / spread : std::numeric_limits<double>::infinity();
        return std::clamp(slope, least, 1e9);
    }
};

// Converts a solution [w; b], stored with a stride in u, to units of the raw features.
// The exact coefficient of a subnormal feature may overflow, so it is clipped to the largest double.
void write_plane(const PlaneSums& sums, const double* u, std::size_t stride, double threshold, double* coef,
                 double* intercept) {
    const std::size_t d = sums.n_features();
    double at_origin = 0.0;
    for (std::size_t j = 0; j < d; ++j) {
        constexpr double largest = std::numeric_limits<double>::max();
        coef[j] = std::clamp(u[j * stride] / sums.unit[j], -largest, largest);
        at_origin += coef[j] * sums.view.origin()[j];
    }
    *intercept = -at_origin - u[d * stride] - threshold;
}

// -- solution of one plane at a time ----------------------------------------------------------------------------------

class OnePlane {
  public:
    OnePlane(const PlaneSums& sums, const PlaneRule& rule, const Penalty& penalty)
        : sums_(sums),
          rule_(rule),
          penalty_(penalty),
          d_(sums.n_features()),
          size_(rule.pairs ? d_ : d_ + 1),
          stride_((size_ + kLine - 1) / kLine * kLine),
          own_(aligned_buffer<double>((d_ + 1) * (d_ + 1))),
          matrix_(aligned_buffer<double>(size_ * stride_)),
          solution_(d_ + 1) {}

    // Factors the matrix of the plane. Returns false if the matrix is not positive definite.
    bool solve(std::size_t plane, double* coef, double* intercept, double* slope) {
        positive_ = sums_.positive(plane);
        count_ = sums_.counts[positive_];
        rest_ = sums_.n_rows - count_;
        if (sums_.n_classes() > 1) sums_.matrix(positive_, own_.get());
        const FactorLoops& loops = steelyard::loops().factor;
        if (rule_.pairs)
            set_pairs();
        else
            set_right();
        if (rule_.pairs || rule_.balanced || plane == 0) {  // in the other cases all planes share one matrix
            if (!rule_.pairs) set_margin();
            add_penalty(penalty_, 1.0 / rule_.C, !rule_.pairs, matrix_.get(), stride_);
            if (!loops.factor(matrix_.get(), size_, stride_)) return false;
        }
        loops.solve(matrix_.get(), size_, stride_, solution_.data());
        if (rule_.pairs) solution_[d_] = 0.0;
        const Moments moments = score_moments();
        write_plane(sums_, solution_.data(), 1, threshold(moments), coef, intercept);
        *slope = moments.slope();
        return true;
    }

  private:
    void set_margin() {
        const Margin margin(sums_, rule_, positive_);
        const double *fitted = sums_.fitted(), *own = margin.own_share == 0.0 ? fitted : own_.get();
        for (std::size_t i = 0; i < size_; ++i)
            for (std::size_t j = 0; j <= i; ++j) {
                const std::size_t at = i * size_ + j;
                matrix_[i * stride_ + j] = margin.share * fitted[at] + margin.own_share * own[at];
            }
    }
    void set_right() {
        const Margin margin(sums_, rule_, positive_);
        for (std::size_t j = 0; j <= d_; ++j) solution_[j] = margin.right(sums_, positive_, j);
    }

    // Sets the scatter matrices of the class and of all other classes, and the difference of their means.
    // If there is only one class, only the penalty remains.
    void set_pairs() {
        std::fill_n(matrix_.get(), d_ * stride_, 0.0);
        std::fill(solution_.begin(), solution_.end(), 0.0);
        if (sums_.n_classes() == 1) return;
        std::vector<double> mine(d_), rest(d_);
        for (std::size_t j = 0; j < d_; ++j) {
            mine[j] = sums_.sum_of(positive_)[j] / count_;
            rest[j] = (sums_.all[j] - sums_.sum_of(positive_)[j]) / rest_;
            solution_[j] = mine[j] - rest[j];
        }
        for (std::size_t i = 0; i < d_; ++i)
            for (std::size_t j = 0; j <= i; ++j) {
                const std::size_t from = i * (d_ + 1) + j;
                matrix_[i * stride_ + j] = own_[from] / count_ + (sums_.total[from] - own_[from]) / rest_ -
                                           mine[i] * mine[j] - rest[i] * rest[j] + solution_[i] * solution_[j];
            }
    }

    double threshold(const Moments& moments) const {
        if (sums_.n_classes() == 1) return 0.0;
        if (rule_.gmean) return (sums_.n_classes() == 2 ? left_out(moments) : moments).gmean_cut();
        return rule_.pairs ? 0.5 * (moments.means[0] + moments.means[1]) : 0.0;
    }

    // Returns the moments of leave-one-out scores of the positive class and of all other classes.
    // The mean leverage of the n rows of a class is w * trace(inv(A) M) / n.
    // A is the matrix of the linear system, M the matrix of the rows of the class, and w their weight.
    Moments left_out(const Moments& moments) const {
        AlignedVector<double> inverse(size_ * stride_), work(size_ * stride_);
        steelyard::loops().factor.invert(matrix_.get(), size_, stride_, work.data(), inverse.data());
        double own = 0.0, all = 0.0;
        for (std::size_t i = 0; i < size_; ++i)
            for (std::size_t j = 0; j <= i; ++j) {
                const double entry = (i == j ? 1.0 : 2.0) * inverse[i * stride_ + j];
                own += entry * own_[i * size_ + j];
                all += entry * sums_.total[i * size_ + j];
            }
        double own_weight = 1.0, rest_weight = 1.0;
        if (rule_.balanced) {
            own_weight = rest_ / sums_.n_rows;
            rest_weight = count_ / sums_.n_rows;
        } else if (!rule_.factors.empty()) {
            own_weight = rule_.factors[positive_];
            rest_weight = rule_.factors[1 - positive_];
        }
        return moments.left_out({own_weight * own / count_, rest_weight * (all - own) / rest_});
    }

    Moments score_moments() const {
        const FactorLoops& loops = steelyard::loops().factor;
        const double* u = solution_.data();
        double own_sum = -count_ * u[d_], all_sum = -sums_.n_rows * u[d_];
        for (std::size_t j = 0; j < d_; ++j) {
            own_sum += sums_.sum_of(positive_)[j] * u[j];
            all_sum += sums_.all[j] * u[j];
        }
        const double all = loops.quadratic(sums_.total.get(), d_ + 1, d_ + 1, u);
        const double own = sums_.n_classes() == 1 ? all : loops.quadratic(own_.get(), d_ + 1, d_ + 1, u);
        return {sums_, positive_, own_sum, all_sum, own, all};
    }

    const PlaneSums& sums_;
    const PlaneRule& rule_;
    const Penalty& penalty_;
    static constexpr std::size_t kLine = 8;  // doubles per cache line; the rows of matrices are aligned to cache lines
    const std::size_t d_, size_, stride_;
    std::size_t positive_ = 0;
    double count_ = 0.0, rest_ = 0.0;
    const AlignedBuffer<double> own_, matrix_;  // lower triangles; the upper triangles are not used
    std::vector<double> solution_;
};

// -- solution of several planes in SIMD lanes -------------------------------------------------------------------------

// Solves several planes at once, one per SIMD lane, with targets +1 and -1. Used for more than two classes.
// Unused lanes repeat the last plane.
class PlaneLanes {
  public:
    PlaneLanes(const PlaneSums& sums, const PlaneRule& rule, const Penalty& penalty)
        : sums_(sums),
          rule_(rule),
          size_(sums.size()),
          lanes_(steelyard::loops().factor.lanes),
          square_(size_ * size_),
          penalty_(Triangle::entries(size_)),
          total_(penalty_.size()),
          fitted_(penalty_.size()),
          own_(penalty_.size() * lanes_),
          matrix_(own_.size()),
          solution_(size_ * lanes_) {
        add_penalty(penalty, 1.0 / rule.C, true, square_.data(), size_);
        pack(square_.data(), 1, penalty_.data());
        pack(sums.total.get(), 1, total_.data());
        pack(sums.fitted(), 1, fitted_.data());
    }

    std::size_t lanes() const { return lanes_; }

    // Solves consecutive planes, beginning with `first`, one in each lane.
    bool solve(std::size_t first, double* coef, double* intercept, double* slope) {
        const FactorLoops& loops = steelyard::loops().factor;
        const std::size_t n = std::min(lanes_, sums_.n_planes() - first), d = size_ - 1;
        alignas(64) double share[kMostLanes], own_share[kMostLanes], own[kMostLanes], all[kMostLanes];
        for (std::size_t lane = 0; lane < lanes_; ++lane) {
            const std::size_t plane = first + std::min(lane, n - 1);
            const Margin margin(sums_, rule_, plane);
            share[lane] = margin.share;
            own_share[lane] = margin.own_share;
            for (std::size_t j = 0; j < size_; ++j) solution_[j * lanes_ + lane] = margin.right(sums_, plane, j);
            if (lane < n) sums_.matrix(plane, square_.data());
            pack(square_.data(), lanes_, own_.data() + lane);
        }
        loops.combine_lanes(fitted_.data(), penalty_.data(), share, own_share, total_.size(), own_.data(),
                            matrix_.data());
        if (!loops.factor_lanes(matrix_.data(), size_)) return false;
        loops.solve_lanes(matrix_.data(), size_, solution_.data());
        loops.quadratic_lanes(own_.data(), total_.data(), size_, solution_.data(), own, all);
        for (std::size_t lane = 0; lane < n; ++lane) {
            const double* u = solution_.data() + lane;
            const std::size_t plane = first + lane;
            double own_sum = -sums_.counts[plane] * u[d * lanes_], all_sum = -sums_.n_rows * u[d * lanes_];
            for (std::size_t j = 0; j < d; ++j) {
                own_sum += sums_.sum_of(plane)[j] * u[j * lanes_];
                all_sum += sums_.all[j] * u[j * lanes_];
            }
            const Moments moments(sums_, plane, own_sum, all_sum, own[lane], all[lane]);
            write_plane(sums_, u, lanes_, rule_.gmean ? moments.gmean_cut() : 0.0, coef + lane * d, intercept + lane);
            slope[lane] = moments.slope();
        }
        return true;
    }

    static constexpr std::size_t kMostLanes = 8;

  private:
    void pack(const double* square, std::size_t stride, double* out) const {
        for (std::size_t i = 0; i < size_; ++i)
            for (std::size_t j = 0; j <= i; ++j, out += stride) *out = square[i * size_ + j];
    }

    const PlaneSums& sums_;
    const PlaneRule& rule_;
    const std::size_t size_, lanes_;
    std::vector<double> square_, penalty_, total_, fitted_;
    AlignedVector<double> own_, matrix_, solution_;
};

}  // namespace

bool solve_planes(const ExactView& view, const PlaneRule& rule, double* coef, double* intercept, double* slope) {
    const PlaneSums sums(view, rule.standardize, rule.factors);
    const Penalty penalty = penalty_of(sums, rule);
    const std::size_t n = sums.n_planes(), d = sums.n_features();
    *slope = 0.0;
    if (!rule.pairs && n >= kFewestPlanes && d <= kMostFeatures) {
        PlaneLanes planes(sums, rule, penalty);
        double slopes[PlaneLanes::kMostLanes];
        for (std::size_t first = 0; first < n; first += planes.lanes()) {
            if (!planes.solve(first, coef + first * d, intercept + first, slopes)) return false;
            for (std::size_t p = first; p < std::min(n, first + planes.lanes()); ++p)
                *slope += slopes[p - first] / static_cast<double>(n);
        }
        return true;
    }
    OnePlane one(sums, rule, penalty);
    for (std::size_t p = 0; p < n; ++p) {
        double mine;
        if (!one.solve(p, coef + p * d, intercept + p, &mine)) return false;
        *slope += mine / static_cast<double>(n);
    }
    return true;
}

}  // namespace steelyard
