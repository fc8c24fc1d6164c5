#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/denormals.hpp"
#include "koil/koil.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kSpareRows = 16;  // kernel rows that are evaluated before they are added up
constexpr std::size_t kBits = 64;
constexpr std::uint64_t kRare = 4;      // a class is rare if the other one is so many times as frequent
constexpr std::size_t kMostAsked = 16;  // neighbours whose scores are worked out one by one
constexpr std::size_t kTried = 4;       // scores that tell whether to begin with that
// Steps whose rounding may add up in the scores.
template <class Real>
constexpr std::uint32_t kStepsToRefresh = sizeof(Real) == sizeof(double) ? 4096 : 1024;

// Weights are kept in units of a scale that falls: the smaller it gets, the larger they are.
template <class Real>
constexpr double kSmallestScale = sizeof(Real) == sizeof(double) ? 1e-100 : 1e-15;
// Far below any rounding, far above the slow denormal numbers.
template <class Real>
constexpr Real kNoWeight = sizeof(Real) == sizeof(double) ? Real(1e-250) : Real(1e-30);

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
      behind_(state.behind) {
    // Files of versions whose machines were all of doubles may hold weights in units that are too small for others.
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
        take(side.counted, counted_);
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
                          part(counted_),
                          sides_[s].oldest,
                          sides_[s].seen};
    }
    state.behind = behind_;
    state.scale = scale_;
    state.log_weight = log_weight;
    state.steps = steps_;
    return state;
}

template <class Real>
void KoilMachine<Real>::reserve(int side) {
    if (sides_[side].count < capacity_ || is_full(side)) return;
    const std::size_t doubled = matrix_.rounded_up(std::max<std::size_t>(2 * capacity_, 2 * KoilMatrix<Real>::kGroup));
    const bool bounded = budgets_[0] != 0 && budgets_[1] != 0;  // slots are as many on both sides
    grow(bounded ? std::min(doubled, matrix_.rounded_up(std::max(budgets_[0], budgets_[1]))) : doubled);
}

template <class Real>
void KoilMachine<Real>::grow(std::size_t capacity) {
    const std::size_t old_capacity = capacity_;
    matrix_.complete_columns(counts());
    matrix_.grow(capacity, counts());
    // Every side's part of an array moves to where it begins now.
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
    counted_ = moved(counted_, n_slots());
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

// Kernel values of one vector with those of a side; where no matrix is kept, until the same spare is used again.
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
        if (coef_[at] != counted_[at]) set_weight(at, coef_[at]);
}

template <class Real>
void KoilMachine<Real>::set_weight(std::size_t at, Real weight) {
    coef_[at] = weight;
    changed_[at / kBits] |= std::uint64_t{1} << at % kBits;
}

// Scores of the side that is not behind are to follow.
template <class Real>
void KoilMachine<Real>::add_weight(std::size_t at, Real weight, const KernelAccess<Real>& access) {
    if (!matrix_.is_kept() && changes_.count == kSpareRows) apply_changes(1 - behind_);
    change(row(at, 1 - behind_, access, changes_.count), weight);
    set_weight(at, coef_[at] + weight);
}

// Brings the scores of the side that is behind up to date.
template <class Real>
void KoilMachine<Real>::catch_up(const KernelAccess<Real>& access) {
    matrix_.complete_columns(counts());
    for (std::size_t word = 0; word < changed_.size(); ++word) {
        for (std::uint64_t bits = changed_[word]; bits; bits &= bits - 1) {
            const std::size_t at = word * kBits + static_cast<std::size_t>(std::countr_zero(bits));
            if (!matrix_.is_kept() && changes_.count == kSpareRows) apply_changes(behind_);
            change(row(at, behind_, access, changes_.count), coef_[at] - counted_[at]);
            counted_[at] = coef_[at];
        }
        changed_[word] = 0;
    }
    apply_changes(behind_);
}

// The sample's score; if it may be stored also its score by the weights that are counted.
template <class Real>
typename KoilMachine<Real>::Scores KoilMachine<Real>::scores_of(const Sample& sample, bool may_be_stored) const {
    if (!may_be_stored) return {dot(coef_.data(), sample.similarities), Real(0)};
    TwoDots<Real> query{
        {coef_.data(), counted_.data()}, sample.similarities, {sides_[0].count, sides_[1].count}, capacity_, {}};
    loops().online.of<Real>().dot_sides_twice(query);
    return {query.products[0], query.products[1]};
}

template <class Real>
void KoilMachine<Real>::find_violators(const Sample& sample, Real unscaled_score, std::size_t most) {
    const int other = 1 - sample.side();
    const double score = scale_ * unscaled_score;
    n_chosen_ = loops().online.of<Real>().violators(
        {scores_.data() + slot(other, 0), sample.similarities + slot(other, 0), sides_[other].count,
         Real(1.0 - sample.y * score), Real(sample.y * scale_), most, losses_.data(), keys_.data(), chosen_.data()});
}

// The scores of the side that is behind are asked for: either those of the sample's nearest neighbours there, which do
// as long as all of these violate, or all of them, brought up to date. The former is less work for a class so rare that
// many weights have changed since a sample of it came. (Not inlined: the code around it is that of every sample.)
template <class Real>
[[gnu::noinline]] void KoilMachine<Real>::ask_other_side(const Sample& sample, const KoilRule& rule,
                                                         const KernelAccess<Real>& access) {
    const int own = sample.side();
    const bool is_rare = kRare * sides_[own].seen < sides_[1 - own].seen;
    if (is_rare && matrix_.is_kept() && find_nearest(sample, rule.n_neighbors)) return;
    catch_up(access);
    behind_ = own;
}

// Whether the `most` vectors of the other side that are nearest to the sample all violate; then they are chosen.
template <class Real>
bool KoilMachine<Real>::find_nearest(const Sample& sample, std::size_t most) {
    const int other = 1 - sample.side();
    const std::size_t n = sides_[other].count;
    if (most > kMostAsked || n < most) return false;
    const double score = scale_ * dot(coef_.data(), sample.similarities);
    const Real base = Real(1.0 - sample.y * score), slope = Real(sample.y * scale_);
    // By scores as they were. Where some do not violate, one of the nearest is not likely to either.
    const Real *scores = scores_.data() + slot(other, 0), *similarities = sample.similarities + slot(other, 0);
    if (!std::all_of(scores, scores + std::min(n, kTried), [&](Real g) { return base + slope * g > 0; })) return false;
    n_chosen_ = loops().online.of<Real>().violators(
        {scores, similarities, n, Real(1), Real(0), most, losses_.data(), keys_.data(), chosen_.data()});
    for (std::size_t v = 0; v < n_chosen_; ++v) {
        const std::size_t at = slot(other, chosen_[v]);
        matrix_.complete_row(at);
        const Real loss = base + slope * dot(coef_.data(), matrix_.row(at));
        if (!(loss > 0)) return false;
        losses_[chosen_[v]] = loss;
    }
    return n_chosen_ == most;
}

// Moves the violators away from the sample; returns the weight that the sample gets for it.
template <class Real>
Real KoilMachine<Real>::push_apart(const Sample& sample, const KoilRule& rule, double rate, Outcome& outcome,
                                   const KernelAccess<Real>& access) {
    const double step = rate * rule.C * sample.y / scale_;
    const int own = sample.side(), other = 1 - own;
    if (n_chosen_ == 0) return sides_[own].count == 0 || sides_[other].count == 0 ? Real(step) : Real(0);
    Real weight = 0;
    double loss_sum = 0.0;
    for (std::size_t v = 0; v < n_chosen_; ++v) {
        const double loss = losses_[chosen_[v]];
        const Real pushed = Real(rule.smooth ? 2.0 * step * loss : step);
        add_weight(slot(other, chosen_[v]), -pushed, access);
        weight += pushed;
        loss_sum += rule.smooth ? loss * loss : loss;
    }
    outcome.loss = loss_sum;
    return weight;
}

// The position that the sample takes on its side if it has a weight; the number of positions if it does not get in.
template <class Real>
std::size_t KoilMachine<Real>::place(const Sample& sample, const KoilRule& rule) const {
    const Side& own = sides_[sample.side()];
    if (!is_full(sample.side())) return own.count;
    const std::size_t budget = budgets_[sample.side()];
    if (is_first_in_first_out(rule.policy)) return own.oldest < budget ? own.oldest : 0;
    // One of all samples seen, each as likely: those beyond the budget stand for "not taken".
    const double drawn = sample.uniform * static_cast<double>(own.seen);
    return drawn < static_cast<double>(budget) ? static_cast<std::size_t>(drawn) : budget;
}

// Puts the sample into position i, whose vector leaves if there is one. By the weights that are counted, of which that
// of the vector is none any more, the sample's score is `counted_score`; it is of no use where its side is not behind.
template <class Real>
void KoilMachine<Real>::store(const Sample& sample, std::size_t i, Real weight, Real counted_score, const Gone& gone,
                              Outcome& outcome, const KernelAccess<Real>& access) {
    const int side = sample.side();
    const std::size_t at = slot(side, i);
    outcome.place = static_cast<std::uint32_t>(i);
    outcome.evicted = i < sides_[side].count;
    if (outcome.evicted) weight += take_out(sample, at, gone, access);
    change(sample.similarities + slot(1 - behind_, 0), weight);
    apply_changes(1 - behind_);

    if (!outcome.evicted) ++sides_[side].count;
    set_weight(at, weight);
    sample.similarities[at] = sample.self_similarity;
    scores_[at] = side == behind_ ? counted_score : dot(coef_.data(), sample.similarities);
    if (!matrix_.is_kept()) return;
    if (side == behind_)
        matrix_.write_row(at, sample.similarities, counts());
    else
        matrix_.write_row_and_column(at, sample.similarities, counts());
}

// Scores forget the vector in a slot, for the sake of the sample, which is of its side; its weight goes to whom it is
// to go to. Returns what of it goes to the sample.
template <class Real>
Real KoilMachine<Real>::take_out(const Sample& sample, std::size_t at, const Gone& gone,
                                 const KernelAccess<Real>& access) {
    const int side = sample.side();
    const std::size_t first = slot(side, 0), count = sides_[side].count;
    matrix_.complete_row(at);
    const Real weight = coef_[at], factor = -gone.counted;
    add_weight(at, -weight, access);
    Real *scores = scores_.data() + slot(behind_, 0), *row = this->row(at, behind_, access, kSpareRows);
    if (!gone.has_heir || side != behind_) {
        const Real* only = row;
        loops().online.of<Real>().add_rows(&only, &factor, 1, scores, sides_[behind_].count);
    }
    if (!gone.has_heir) return 0;
    Real* kin = side == behind_ ? row : matrix_.row(at) + first;  // where only neighbours are asked, the matrix is kept
    kin[at - first] = sample.similarities[at];  // the sample stands here from now on, and may be the most similar one
    const std::size_t heir =
        first + (side == behind_ ? loops().online.of<Real>().add_and_argmax(kin, factor, scores, count)
                                 : loops().online.of<Real>().argmax(kin, count));
    if (heir == at) return weight;
    add_weight(heir, weight, access);
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
    if (behind_ != own) ask_other_side(sample, rule, access);
    // Which vector would leave is known, so its weight need not be counted in the score that the sample would have.
    const std::size_t i = place(sample, rule), at = slot(own, i);
    const bool gets_in = i < sides_[own].count || !is_full(own);
    const bool has_heir = rule.policy == BufferPolicy::reservoir_plus || rule.policy == BufferPolicy::fifo_plus;
    Gone gone{0, has_heir};
    if (i < sides_[own].count) gone.counted = std::exchange(counted_[at], Real(0));
    Scores scores{};
    if (behind_ == own) {
        scores = scores_of(sample, gets_in);
        find_violators(sample, scores.current, rule.n_neighbors);
    }
    const double rate = learning_rate(rule);
    if (rule.decay) scale_ *= 1.0 - rate;
    const Real weight = push_apart(sample, rule, rate, outcome, access);
    if (weight == 0) {  // well ranked, or steps too small for a number: nothing to learn
        if (i < sides_[own].count) counted_[at] = gone.counted;
        changes_.count = 0;
        return;
    }

    if (gets_in) {
        if (is_full(own) && is_first_in_first_out(rule.policy)) sides_[own].oldest = i + 1 == budgets_[own] ? 0 : i + 1;
        return store(sample, i, weight, scores.counted, gone, outcome, access);
    }
    if (has_heir) {
        const Real* similarities = sample.similarities + slot(own, 0);
        const std::size_t heir = slot(own, loops().online.of<Real>().argmax(similarities, sides_[own].count));
        add_weight(heir, weight, access);
    }
    apply_changes(1 - behind_);
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
        if (std::abs(weight) < kNoWeight<Real>) weight = 0;
    }
    scale_ = 1.0;
    steps_ = 0;
    for (int s = 0; s < 2; ++s)
        for (std::size_t i = 0; i < sides_[s].count; ++i) scores_[slot(s, i)] = fresh_score(slot(s, i), access);
    counted_ = coef_;
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
