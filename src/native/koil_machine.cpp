#include <algorithm>
#include <cmath>

#include "steelyard/koil.hpp"
#include "steelyard/simd.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kLaneSlots = 8;       // a side begins on a cache line
constexpr std::size_t kMatrixSlots = 4096;  // beyond this (128 MB) kernel rows are evaluated when needed
constexpr std::uint32_t kStepsToRefresh = 4096;
constexpr double kSmallestScale = 1e-100;
constexpr double kNoWeight = 1e-250;  // far below any rounding, far above the slow denormal numbers

std::size_t rounded_up(std::size_t n) { return (n + kLaneSlots - 1) / kLaneSlots * kLaneSlots; }

}  // namespace

KoilMachine::KoilMachine(const KernelSpec& kernel, std::size_t budget) : kernel_(kernel), budget_(budget) {}

KoilMachine::KoilMachine(const KernelSpec& kernel, std::size_t budget, const KoilMachineState& state)
    : log_weight(state.log_weight), kernel_(kernel), budget_(budget), scale_(state.scale), steps_(state.steps) {
    grow(rounded_up(std::max(state.sides[0].ids.size(), state.sides[1].ids.size())));
    for (int s = 0; s < 2; ++s) {
        const KoilMachineState::Side& side = state.sides[s];
        sides_[s] = {side.ids.size(), side.oldest, side.seen};
        std::copy(side.ids.begin(), side.ids.end(), ids_.begin() + slot(s, 0));
        std::copy(side.coef.begin(), side.coef.end(), coef_.begin() + slot(s, 0));
        std::copy(side.scores.begin(), side.scores.end(), scores_.begin() + slot(s, 0));
    }
}

KoilMachineState KoilMachine::state() const {
    KoilMachineState state;
    for (int s = 0; s < 2; ++s) {
        const auto part = [&](const auto& all) { return all.begin() + slot(s, 0); };
        const std::size_t n = sides_[s].count;
        state.sides[s] = {{part(ids_), part(ids_) + n},
                          {part(coef_), part(coef_) + n},
                          {part(scores_), part(scores_) + n},
                          sides_[s].oldest,
                          sides_[s].seen};
    }
    state.scale = scale_;
    state.log_weight = log_weight;
    state.steps = steps_;
    return state;
}

bool KoilMachine::keeps_matrix() const { return n_slots() <= kMatrixSlots; }

void KoilMachine::reserve(int side) {
    if (sides_[side].count < capacity_ || is_full(side)) return;
    const std::size_t doubled = rounded_up(std::max<std::size_t>(2 * capacity_, 2 * kLaneSlots));
    grow(budget_ ? std::min(doubled, rounded_up(budget_)) : doubled);
}

void KoilMachine::grow(std::size_t capacity) {
    const std::size_t old_capacity = capacity_, old_stride = stride_;
    // Every side's part of an array moves to where it begins now.
    const auto moved = [&](const auto& old, std::size_t n) {
        std::remove_cvref_t<decltype(old)> grown(n);
        for (int s = 0; s < 2; ++s)
            std::copy_n(old.begin() + s * old_capacity, sides_[s].count, grown.begin() + s * capacity);
        return grown;
    };
    capacity_ = capacity;
    // An odd number of cache lines: the entries of a column then fall into different sets of the cache.
    stride_ = (n_slots() / kLaneSlots | 1) * kLaneSlots;
    AlignedVector<double> matrix(keeps_matrix() ? n_slots() * stride_ : 0);
    for (int s = 0; s < 2 && !matrix.empty(); ++s)
        for (std::size_t i = 0; i < sides_[s].count; ++i)
            for (int t = 0; t < 2; ++t)
                std::copy_n(matrix_.data() + (s * old_capacity + i) * old_stride + t * old_capacity, sides_[t].count,
                            matrix.data() + slot(s, i) * stride_ + t * capacity);
    matrix_ = std::move(matrix);
    ids_ = moved(ids_, n_slots());
    coef_ = moved(coef_, n_slots());
    scores_ = moved(scores_, n_slots());
    losses_.assign(capacity_, 0.0);
    keys_.assign(capacity_ + kKeyPadding, 0);
    chosen_.assign(capacity_ + 1, 0);
    // The violators, the leaving vector, its heir and the sample.
    changes_.rows.resize(capacity_ + 3);
    changes_.factors.resize(capacity_ + 3);
}

double KoilMachine::dot(const double* row) const {
    return loops().online.dot_sides(coef(0), row, sides_[0].count, coef(1), row + slot(1, 0), sides_[1].count);
}

// Kernel values of one vector with all slots; valid until the next sample.
double* KoilMachine::row(int side, std::size_t i, const KernelAccess& access) {
    if (keeps_matrix()) return matrix_.data() + slot(side, i) * stride_;
    double* spare = spare_rows_.data() + changes_.count * stride_;
    access.slot_row(side, i, spare);
    return spare;
}

void KoilMachine::change(const double* row, double factor) {
    changes_.rows[changes_.count] = row;
    changes_.factors[changes_.count++] = factor;
}

void KoilMachine::apply_changes() {
    for (int s = 0; s < 2; ++s) {  // rows advance from one side's slots to the other's
        loops().online.add_rows(changes_.rows.data(), changes_.factors.data(), changes_.count,
                                scores_.data() + slot(s, 0), sides_[s].count);
        for (std::size_t r = 0; r < changes_.count; ++r) changes_.rows[r] += capacity_;
    }
}

void KoilMachine::find_violators(const Sample& sample, std::size_t most) {
    const int other = 1 - sample.side();
    const double score = scale_ * dot(sample.similarities);
    n_chosen_ = loops().online.violators({scores_.data() + slot(other, 0), sample.similarities + slot(other, 0),
                                          sides_[other].count, 1.0 - sample.y * score, sample.y * scale_, most,
                                          losses_.data(), keys_.data(), chosen_.data()});
}

// Moves the violators away from the sample; returns the weight that the sample gets for it.
double KoilMachine::push_apart(const Sample& sample, const KoilRule& rule, Outcome& outcome,
                               const KernelAccess& access) {
    const double step = rule.learning_rate * rule.C * sample.y / scale_;
    const int own = sample.side(), other = 1 - own;
    if (n_chosen_ == 0) return sides_[own].count == 0 || sides_[other].count == 0 ? step : 0.0;
    double weight = 0.0;
    for (std::size_t v = 0; v < n_chosen_; ++v) {
        const double loss = losses_[chosen_[v]], pushed = rule.smooth ? 2.0 * step * loss : step;
        add_to(other, chosen_[v], -pushed, access);
        weight += pushed;
        outcome.loss += rule.smooth ? loss * loss : loss;
    }
    return weight;
}

void KoilMachine::add_to(int side, std::size_t i, double weight, const KernelAccess& access) {
    change(row(side, i, access), weight);
    coef_[slot(side, i)] += weight;
}

// The position that the sample takes on its side; the number of positions if it does not get in.
std::size_t KoilMachine::place(const Sample& sample, const KoilRule& rule) {
    Side& own = sides_[sample.side()];
    if (!is_full(sample.side())) return own.count;
    if (rule.policy == BufferPolicy::fifo || rule.policy == BufferPolicy::fifo_plus) {
        const std::size_t oldest = own.oldest;
        own.oldest = (oldest + 1) % budget_;
        return oldest;
    }
    // One of all samples seen, each as likely: those beyond the budget stand for "not taken".
    const double drawn = sample.uniform * static_cast<double>(own.seen);
    return drawn < static_cast<double>(budget_) ? static_cast<std::size_t>(drawn) : budget_;
}

// Puts the sample into position i, whose vector leaves if there is one; with keep_weight its weight does not go.
void KoilMachine::store(const Sample& sample, std::size_t i, double weight, bool keep_weight, Outcome& outcome,
                        const KernelAccess& access) {
    const int side = sample.side();
    const std::size_t at = slot(side, i);
    outcome.place = static_cast<std::uint32_t>(i);
    outcome.evicted = i < sides_[side].count;
    if (outcome.evicted) {
        double* gone = row(side, i, access);
        const double gone_weight = coef_[at];
        change(gone, -gone_weight);
        coef_[at] = 0.0;
        if (keep_weight) {
            gone[at] = sample.similarities[at];  // the sample stands here from now on, and may be the most similar one
            const std::size_t heir = loops().online.argmax(gone + slot(side, 0), sides_[side].count);
            if (heir == i)
                weight += gone_weight;
            else
                add_to(side, heir, gone_weight, access);
        }
    }
    change(sample.similarities, weight);
    apply_changes();

    sides_[side].count += !outcome.evicted;
    coef_[at] = weight;
    sample.similarities[at] = sample.self_similarity;
    scores_[at] = dot(sample.similarities);
    if (keeps_matrix()) write_kernel_values(sample, at);
}

void KoilMachine::write_kernel_values(const Sample& sample, std::size_t at) {
    std::copy_n(sample.similarities, n_slots(), matrix_.data() + at * stride_);
    for (int s = 0; s < 2; ++s) {
        double* entry = matrix_.data() + slot(s, 0) * stride_ + at;
        const double* value = sample.similarities + slot(s, 0);
        for (const double* end = value + sides_[s].count; value != end; ++value, entry += stride_) *entry = *value;
    }
}

void KoilMachine::learn(const Sample& sample, const KoilRule& rule, const KernelAccess& access, Outcome& outcome) {
    const int own = sample.side();
    changes_.count = 0;
    ++sides_[own].seen;
    ++steps_;
    find_violators(sample, rule.n_neighbors);
    // The violators' rows, the leaving vector's and its heir's.
    if (!keeps_matrix()) spare_rows_.resize((n_chosen_ + 2) * stride_);
    if (rule.decay) scale_ *= 1.0 - rule.learning_rate;
    const double weight = push_apart(sample, rule, outcome, access);
    if (weight == 0.0) return;  // well ranked: nothing to learn

    const bool keep_weight = rule.policy == BufferPolicy::reservoir_plus || rule.policy == BufferPolicy::fifo_plus;
    const std::size_t i = place(sample, rule);
    if (i < sides_[own].count || !is_full(own)) return store(sample, i, weight, keep_weight, outcome, access);
    if (keep_weight) {
        const double* similarities = sample.similarities + slot(own, 0);
        add_to(own, loops().online.argmax(similarities, sides_[own].count), weight, access);
    }
    apply_changes();
}

bool KoilMachine::needs_refresh() const { return steps_ >= kStepsToRefresh || scale_ < kSmallestScale; }

void KoilMachine::refresh(const KernelAccess& access) {
    for (double& weight : coef_) {
        weight *= scale_;
        if (std::abs(weight) < kNoWeight) weight = 0.0;
    }
    scale_ = 1.0;
    steps_ = 0;
    changes_.count = 0;
    if (!keeps_matrix()) spare_rows_.resize(stride_);
    for (int s = 0; s < 2; ++s)
        for (std::size_t i = 0; i < sides_[s].count; ++i) scores_[slot(s, i)] = dot(row(s, i, access));
}

void KoilMachine::fill_matrix(const KernelAccess& access) {
    for (int s = 0; s < 2 && keeps_matrix(); ++s)
        for (std::size_t i = 0; i < sides_[s].count; ++i) access.slot_row(s, i, row(s, i, access));
}

double KoilMachine::cache_error(const KernelAccess& access) const {
    KoilMachine fresh = *this;
    fresh.refresh(access);
    double error = 0.0;
    for (int s = 0; s < 2; ++s)
        for (std::size_t at = slot(s, 0); at < slot(s, sides_[s].count); ++at)
            error = std::max(error, std::abs(fresh.scores_[at] - scale_ * scores_[at]));
    return error;
}

}  // namespace steelyard
