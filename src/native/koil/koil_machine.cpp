#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/compiler.hpp"
#include "common/denormals.hpp"
#include "koil/koil.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Maximum number of kernel rows that are computed before they are added to the scores.
constexpr std::size_t kSpareRows = 16;
constexpr std::size_t kBits = 64;
constexpr std::uint64_t kRareRatio = 4;        // a class is rare if the other class has this many times more samples
constexpr std::size_t kMaxLazyNeighbors = 16;  // scores may be computed individually for at most this many neighbours
// Number of stale scores that are checked before the scores of the nearest neighbours are computed individually.
constexpr std::size_t kProbedScores = 4;
// Number of steps after which scores are recomputed to limit rounding errors.
template <class Real>
constexpr std::uint32_t kStepsToRefresh = sizeof(Real) == sizeof(double) ? 4096 : 1024;

// Smallest scale before a refresh. Weights are stored divided by a decreasing scale, so the stored numbers grow.
template <class Real>
constexpr double kSmallestScale = sizeof(Real) == sizeof(double) ? 1e-100 : 1e-15;
// Weights below this limit are set to 0. The limit is far below rounding errors and far above denormal numbers.
template <class Real>
constexpr Real kNegligibleWeight = sizeof(Real) == sizeof(double) ? Real(1e-250) : Real(1e-30);

bool is_first_in_first_out(BufferPolicy policy) {
    return policy == BufferPolicy::fifo || policy == BufferPolicy::fifo_plus;
}

}  // namespace

template <class Real>
KoilMachine<Real>::KoilMachine(const KernelSpec& kernel, const KoilBudgets& budgets)
    : kernel_(kernel), budgets_(budgets) {}

template <class Real>
KoilMachine<Real>::KoilMachine(const KernelSpec& kernel, const KoilBudgets& budgets, const KoilMachineState& state)
    : log_weight(state.log_weight),
      kernel_(kernel),
      budgets_(budgets),
      scale_(state.scale),
      steps_(state.steps),
      stale_side_(state.stale_side) {
    // Files of earlier versions always contain float64 numbers, and their scale may be too small for float32.
    const double unit = scale_ < kSmallestScale<Real> ? scale_ : 1.0;
    scale_ /= unit;
    grow(matrix_.rounded_up(std::max(state.sides[0].ids.size(), state.sides[1].ids.size())));
    for (int s = 0; s < 2; ++s) {
        const KoilMachineState::Side& side = state.sides[s];
        sides_[s] = {.count = side.ids.size(), .seen = side.seen, .oldest = side.oldest};
        std::copy(side.ids.begin(), side.ids.end(), ids_.begin() + slot(s, 0));
        const auto take = [&](const std::vector<double>& from, AlignedVector<Real>& to) {
            std::transform(from.begin(), from.end(), to.begin() + slot(s, 0), [&](double x) { return Real(x * unit); });
        };
        take(side.coef, coef_);
        take(side.scores, scores_);
        take(side.applied, applied_);
    }
    mark_changed();
}

template <class Real>
KoilMachineState KoilMachine<Real>::state() const {
    KoilMachineState state;
    for (int s = 0; s < 2; ++s) {
        const auto part = [&](const auto& all) {
            return std::vector<double>(all.begin() + slot(s, 0), all.begin() + slot(s, sides_[s].count));
        };
        state.sides[s] = {{ids(s), ids(s) + sides_[s].count},
                          part(coef_),
                          part(scores_),
                          part(applied_),
                          sides_[s].oldest,
                          sides_[s].seen};
    }
    state.stale_side = stale_side_;
    state.scale = scale_;
    state.log_weight = log_weight;
    state.steps = steps_;
    return state;
}

template <class Real>
void KoilMachine<Real>::reserve(int side) {
    if (sides_[side].count < capacity_ || is_full(side)) return;
    const std::size_t doubled = matrix_.rounded_up(std::max<std::size_t>(2 * capacity_, 2 * KoilMatrix<Real>::kGroup));
    const bool bounded = budgets_[0] != 0 && budgets_[1] != 0;  // whether both classes have a fixed number of slots
    grow(bounded ? std::min(doubled, matrix_.rounded_up(std::max(budgets_[0], budgets_[1]))) : doubled);
}

template <class Real>
void KoilMachine<Real>::grow(std::size_t capacity) {
    const std::size_t old_capacity = capacity_;
    matrix_.complete_columns(counts());
    matrix_.grow(capacity, counts());
    // Move the entries of each class to their new positions.
    const auto moved = [&](const auto& old, std::size_t n) {
        std::remove_cvref_t<decltype(old)> grown(n);
        for (int s = 0; s < 2; ++s)
            std::copy_n(old.begin() + s * old_capacity, sides_[s].count, grown.begin() + s * capacity);
        return grown;
    };
    capacity_ = capacity;
    ids_ = moved(ids_, n_slots());
    coef_ = moved(coef_, n_slots());
    scores_ = moved(scores_, n_slots());
    applied_ = moved(applied_, n_slots());
    losses_.assign(capacity_, Real(0));
    keys_.assign(capacity_ + kKeyPadding, 0);
    chosen_.assign(capacity_ + kKeyPadding, 0);
    mark_changed();
    changes_.rows.resize(n_slots());
    changes_.factors.resize(n_slots());
    if (!matrix_.is_kept()) spare_rows_.resize((kSpareRows + 1) * capacity_);
}

template <class Real>
Real KoilMachine<Real>::dot(const Real* weights, const Real* row) const {
    return loops().online.of<Real>().dot_sides(weights, row, sides_[0].count, weights + slot(1, 0), row + slot(1, 0),
                                               sides_[1].count);
}

// Returns the kernel values of the vector in slot `at` with all vectors of the side `with`.
// If no matrix is stored, the returned values are valid until row `spare` is reused.
template <class Real>
Real* KoilMachine<Real>::row(std::size_t at, int with, const KernelAccess<Real>& access, std::size_t spare) {
    if (matrix_.is_kept()) return matrix_.row(at) + slot(with, 0);
    const int side = at >= capacity_;
    Real* values = spare_rows_.data() + spare * capacity_;
    access.kernel_values(side, at - slot(side, 0), with, values);
    return values;
}

template <class Real>
void KoilMachine<Real>::change(const Real* row, Real factor) {
    changes_.rows[changes_.count] = row;
    changes_.factors[changes_.count++] = factor;
}

template <class Real>
void KoilMachine<Real>::apply_changes(int side) {
    loops().online.of<Real>().add_rows(changes_.rows.data(), changes_.factors.data(), changes_.count,
                                       scores_.data() + slot(side, 0), sides_[side].count);
    changes_.count = 0;
}

template <class Real>
void KoilMachine<Real>::mark_changed() {
    changed_.assign((n_slots() + kBits - 1) / kBits, 0);
    for (std::size_t at = 0; at < n_slots(); ++at)
        if (coef_[at] != applied_[at]) set_weight(at, coef_[at]);
}

template <class Real>
void KoilMachine<Real>::set_weight(std::size_t at, Real weight) {
    coef_[at] = weight;
    changed_[at / kBits] |= std::uint64_t{1} << at % kBits;
}

// Changes a weight. apply_changes() later updates the scores of the side that is not stale.
template <class Real>
void KoilMachine<Real>::add_weight(std::size_t at, Real weight, const KernelAccess<Real>& access) {
    if (!matrix_.is_kept() && changes_.count == kSpareRows) apply_changes(1 - stale_side_);
    change(row(at, 1 - stale_side_, access, changes_.count), weight);
    set_weight(at, coef_[at] + weight);
}

// Updates the stale scores, so that they include all changes of weights.
template <class Real>
void KoilMachine<Real>::catch_up(const KernelAccess<Real>& access) {
    matrix_.complete_columns(counts());
    for (std::size_t word = 0; word < changed_.size(); ++word) {
        for (std::uint64_t bits = changed_[word]; bits; bits &= bits - 1) {
            const std::size_t at = word * kBits + static_cast<std::size_t>(std::countr_zero(bits));
            if (!matrix_.is_kept() && changes_.count == kSpareRows) apply_changes(stale_side_);
            change(row(at, stale_side_, access, changes_.count), coef_[at] - applied_[at]);
            applied_[at] = coef_[at];
        }
        changed_[word] = 0;
    }
    apply_changes(stale_side_);
}

// Returns the score of the sample with the current weights.
// If the sample may be stored, the result also has its score with the weights in applied_.
template <class Real>
typename KoilMachine<Real>::Scores KoilMachine<Real>::scores_of(const Sample& sample, bool may_be_stored) const {
    if (!may_be_stored) return {dot(coef_.data(), sample.similarities), Real(0)};
    TwoDots<Real> query{
        {coef_.data(), applied_.data()}, sample.similarities, {sides_[0].count, sides_[1].count}, capacity_, {}};
    loops().online.of<Real>().dot_sides_twice(query);
    return {query.products[0], query.products[1]};
}

// Selects the support vectors of the other class whose weights are updated in this step.
// The function selects the nearest violators, or with nearest_first the violators among the nearest vectors.
template <class Real>
void KoilMachine<Real>::find_violators(const Sample& sample, Real unscaled_score, const KoilRule& rule) {
    const int other = 1 - sample.side();
    const double score = scale_ * unscaled_score;
    const Real base = Real(1.0 - sample.y * score), slope = Real(sample.y * scale_);
    const Real *scores = scores_.data() + slot(other, 0), *similarities = sample.similarities + slot(other, 0);
    const auto nearest = [&](Real constant, Real factor) {
        return loops().online.of<Real>().violators({scores, similarities, sides_[other].count, constant, factor,
                                                    rule.n_neighbors, losses_.data(), keys_.data(), chosen_.data()});
    };
    if (!rule.nearest_first) {
        n_chosen_ = nearest(base, slope);
        return;
    }
    // With base 1 and slope 0 every vector has loss 1, so the query returns the nearest vectors.
    const std::size_t n_nearest = nearest(Real(1), Real(0));
    n_chosen_ = 0;
    for (std::size_t v = 0; v < n_nearest; ++v) {
        const std::uint32_t i = chosen_[v];
        losses_[i] = base + slope * scores[i];
        if (losses_[i] > 0) chosen_[n_chosen_++] = i;
    }
}

// Updates stale scores of the support vectors of the other class that this sample needs.
// If all nearest neighbours violate their margins, only the scores of these neighbours are computed.
// Computing few scores saves work for a rare class, because many weights have changed since its last sample.
// If some neighbour does not violate its margin, all stale scores are updated.
// noinline keeps this rarely used function out of the code that runs for every sample.
template <class Real>
STEELYARD_NEVER_INLINE void KoilMachine<Real>::prepare_opposite_scores(const Sample& sample, const KoilRule& rule,
                                                                       const KernelAccess<Real>& access) {
    const int own = sample.side();
    const bool is_rare = kRareRatio * sides_[own].seen < sides_[1 - own].seen;
    if (is_rare && matrix_.is_kept() && nearest_all_violate(sample, rule.n_neighbors)) return;
    catch_up(access);
    stale_side_ = own;
}

// Selects the `max_count` nearest vectors of the other class and returns true if all of them violate their margins.
template <class Real>
bool KoilMachine<Real>::nearest_all_violate(const Sample& sample, std::size_t max_count) {
    const int other = 1 - sample.side();
    const std::size_t n = sides_[other].count;
    if (max_count > kMaxLazyNeighbors || n < max_count) return false;
    const double score = scale_ * dot(coef_.data(), sample.similarities);
    const Real base = Real(1.0 - sample.y * score), slope = Real(sample.y * scale_);
    // Check a few stale scores first: one score without violation means that probably not all nearest vectors violate.
    const Real *scores = scores_.data() + slot(other, 0), *similarities = sample.similarities + slot(other, 0);
    if (!std::all_of(scores, scores + std::min(n, kProbedScores), [&](Real g) { return base + slope * g > 0; }))
        return false;
    n_chosen_ = loops().online.of<Real>().violators(
        {scores, similarities, n, Real(1), Real(0), max_count, losses_.data(), keys_.data(), chosen_.data()});
    for (std::size_t v = 0; v < n_chosen_; ++v) {
        const std::size_t at = slot(other, chosen_[v]);
        matrix_.complete_row(at);
        const Real loss = base + slope * dot(coef_.data(), matrix_.row(at));
        if (!(loss > 0)) return false;
        losses_[chosen_[v]] = loss;
    }
    return n_chosen_ == max_count;
}

// Updates the weights of the violators by equation (3.10). Returns the weight of the new sample.
template <class Real>
Real KoilMachine<Real>::update_violators(const Sample& sample, const KoilRule& rule, double rate, Outcome& outcome,
                                         const KernelAccess<Real>& access) {
    const double step = rate * rule.C * sample.y / scale_;
    const int own = sample.side(), other = 1 - own;
    if (n_chosen_ == 0) {  // first samples: without a weight, no sample would ever be stored
        const bool is_first = sides_[own].count == 0 || sides_[other].count == 0;
        return is_first && !rule.store_all ? Real(step) : Real(0);
    }
    Real weight = 0;
    double loss_sum = 0.0;
    for (std::size_t v = 0; v < n_chosen_; ++v) {
        const double loss = losses_[chosen_[v]];
        const Real change = Real(rule.smooth ? 2.0 * step * loss : step);
        add_weight(slot(other, chosen_[v]), -change, access);
        weight += change;
        loss_sum += rule.smooth ? loss * loss : loss;
    }
    outcome.loss = loss_sum;
    return weight;
}

// Returns the position at which the sample is to be stored, or the budget if reservoir sampling rejects the sample.
template <class Real>
std::size_t KoilMachine<Real>::choose_position(const Sample& sample, const KoilRule& rule) const {
    const Side& own = sides_[sample.side()];
    if (!is_full(sample.side())) return own.count;
    const std::size_t budget = budgets_[sample.side()];
    if (is_first_in_first_out(rule.policy)) return own.oldest < budget ? own.oldest : 0;
    // Draw one of all samples seen so far. An index beyond the budget rejects the new sample.
    const double drawn = sample.uniform * static_cast<double>(own.seen);
    return drawn < static_cast<double>(budget) ? static_cast<std::size_t>(drawn) : budget;
}

// Stores the sample at position i and removes the support vector at this position, if any.
// `applied_score` is the score of the sample with the weights in applied_, without the removed vector.
// `applied_score` is used only if the scores of the class of the sample are stale.
template <class Real>
void KoilMachine<Real>::store(const Sample& sample, std::size_t i, Real weight, Real applied_score,
                              const Removed& removed, Outcome& outcome, const KernelAccess<Real>& access) {
    const int side = sample.side();
    const std::size_t at = slot(side, i);
    outcome.position = static_cast<std::uint32_t>(i);
    outcome.evicted = i < sides_[side].count;
    if (outcome.evicted) weight += remove(sample, at, removed, access);
    change(sample.similarities + slot(1 - stale_side_, 0), weight);
    apply_changes(1 - stale_side_);

    if (!outcome.evicted) ++sides_[side].count;
    set_weight(at, weight);
    sample.similarities[at] = sample.self_similarity;
    scores_[at] = side == stale_side_ ? applied_score : dot(coef_.data(), sample.similarities);
    if (!matrix_.is_kept()) return;
    if (side == stale_side_)
        matrix_.write_row(at, sample.similarities, counts());
    else
        matrix_.write_row_and_column(at, sample.similarities, counts());
}

// Removes the support vector in slot `at` from all scores; the sample will occupy this slot.
// If the policy compensates, transfers the weight of the removed vector. Returns the part that the sample receives.
template <class Real>
Real KoilMachine<Real>::remove(const Sample& sample, std::size_t at, const Removed& removed,
                               const KernelAccess<Real>& access) {
    const int side = sample.side();
    const std::size_t first = slot(side, 0), count = sides_[side].count;
    matrix_.complete_row(at);
    const Real weight = coef_[at], factor = -removed.applied;
    add_weight(at, -weight, access);
    Real *scores = scores_.data() + slot(stale_side_, 0), *row = this->row(at, stale_side_, access, kSpareRows);
    if (!removed.compensates || side != stale_side_) {
        const Real* rows[] = {row};
        loops().online.of<Real>().add_rows(rows, &factor, 1, scores, sides_[stale_side_].count);
    }
    if (!removed.compensates) return 0;
    // The scores of the other class can be stale only if a matrix is stored, see prepare_opposite_scores().
    Real* own_row = side == stale_side_ ? row : matrix_.row(at) + first;
    // The sample will be in this slot, and may itself be the vector most similar to the removed one.
    own_row[at - first] = sample.similarities[at];
    const std::size_t most_similar =
        first + (side == stale_side_ ? loops().online.of<Real>().add_and_argmax(own_row, factor, scores, count)
                                     : loops().online.of<Real>().argmax(own_row, count));
    if (most_similar == at) return weight;
    add_weight(most_similar, weight, access);
    return 0;
}

template <class Real>
double KoilMachine<Real>::learning_rate(const KoilRule& rule) const {
    if (rule.rate_decay == 0.0) return rule.learning_rate;
    return rule.learning_rate * std::pow(static_cast<double>(sides_[0].seen + sides_[1].seen), -rule.rate_decay);
}

template <class Real>
void KoilMachine<Real>::learn(const Sample& sample, const KoilRule& rule, const KernelAccess<Real>& access,
                              Outcome& outcome) {
    const int own = sample.side();
    ++sides_[own].seen;
    ++steps_;
    if (stale_side_ != own) prepare_opposite_scores(sample, rule, access);
    // The vector to remove is known before the scores are computed, so the scores can exclude its weight.
    const std::size_t i = choose_position(sample, rule), at = slot(own, i);
    const bool is_accepted = i < sides_[own].count || !is_full(own);
    const bool compensates = rule.policy == BufferPolicy::reservoir_plus || rule.policy == BufferPolicy::fifo_plus;
    Removed removed{0, compensates};
    if (i < sides_[own].count) removed.applied = std::exchange(applied_[at], Real(0));
    Scores scores{};
    if (stale_side_ == own) {
        scores = scores_of(sample, is_accepted);
        find_violators(sample, scores.current, rule);
    }
    const double rate = learning_rate(rule);
    if (rule.decay) scale_ *= 1.0 - rate;
    const Real weight = update_violators(sample, rule, rate, outcome, access);
    if (weight == 0 && !rule.store_all) {  // there are no violators, or the step underflows
        if (i < sides_[own].count) applied_[at] = removed.applied;
        changes_.count = 0;
        return;
    }

    if (is_accepted) {
        if (is_full(own) && is_first_in_first_out(rule.policy)) sides_[own].oldest = i + 1 == budgets_[own] ? 0 : i + 1;
        return store(sample, i, weight, scores.applied, removed, outcome, access);
    }
    if (compensates) {
        const Real* similarities = sample.similarities + slot(own, 0);
        const std::size_t most_similar = slot(own, loops().online.of<Real>().argmax(similarities, sides_[own].count));
        add_weight(most_similar, weight, access);
    }
    apply_changes(1 - stale_side_);
}

template <class Real>
bool KoilMachine<Real>::needs_refresh() const {
    return steps_ >= kStepsToRefresh<Real> || scale_ < kSmallestScale<Real>;
}

template <class Real>
void KoilMachine<Real>::refresh(const KernelAccess<Real>& access) {
    const Denormals as_zero(false);
    matrix_.complete_columns(counts());
    for (Real& weight : coef_) {
        weight = Real(weight * scale_);
        if (std::abs(weight) < kNegligibleWeight<Real>) weight = 0;
    }
    scale_ = 1.0;
    steps_ = 0;
    for (int s = 0; s < 2; ++s)
        for (std::size_t i = 0; i < sides_[s].count; ++i) scores_[slot(s, i)] = fresh_score(slot(s, i), access);
    applied_ = coef_;
    std::fill(changed_.begin(), changed_.end(), 0);
}

template <class Real>
Real KoilMachine<Real>::fresh_score(std::size_t at, const KernelAccess<Real>& access) {
    const Real *negative = row(at, 0, access, 0), *positive = row(at, 1, access, 1);
    return loops().online.of<Real>().dot_sides(coef(0), negative, sides_[0].count, coef(1), positive, sides_[1].count);
}

template <class Real>
void KoilMachine<Real>::fill_matrix(const KernelAccess<Real>& access) {
    for (int s = 0; s < 2 && matrix_.is_kept(); ++s)
        for (std::size_t i = 0; i < sides_[s].count; ++i)
            for (int t = 0; t < 2; ++t) access.kernel_values(s, i, t, row(slot(s, i), t, access));
}

template <class Real>
double KoilMachine<Real>::cache_error(const KernelAccess<Real>& access) const {
    const Denormals as_zero(false);
    KoilMachine cached = *this, fresh = *this;
    cached.catch_up(access);
    fresh.refresh(access);
    double error = 0.0;
    for (int s = 0; s < 2; ++s)
        for (std::size_t at = slot(s, 0); at < slot(s, sides_[s].count); ++at)
            error = std::max(error, std::abs(fresh.scores_[at] - scale_ * cached.scores_[at]));
    return error;
}

template class KoilMachine<double>;
template class KoilMachine<float>;

}  // namespace steelyard
