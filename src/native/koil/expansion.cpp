#include "koil/expansion.hpp"

#include <algorithm>
#include <cmath>

#include "common/dot.hpp"
#include "common/random.hpp"

namespace steelyard {

namespace {

// A vector is in the span if its distance to the span, divided by its length, is below this value.
constexpr double kInSpan = 1e-7;

}  // namespace

template <class T>
KernelExpansion<T>::KernelExpansion(const KernelSpec& kernel, Rows<T> vectors, std::vector<double> coef,
                                    std::vector<std::uint64_t> times, const Numbers& numbers)
    : kernel_(kernel), rows_(vectors), coef_(std::move(coef)), times_(std::move(times)), numbers_(numbers) {}

template <class T>
template <class Rule>
void KernelExpansion<T>::learn(Rows<T> X, const std::int8_t* y, const Rule& rule) {
    for (std::size_t i = 0; i < X.n_rows; ++i) {
        step(rule, X.data + i * X.n_features, y[i]);
        ++numbers_.seen;
    }
}

template <class T>
void KernelExpansion<T>::scores(Rows<T> X, double* out, unsigned n_threads) const {
    kernel_sums(kernel_, X, rows_, coef_.data(), out, n_threads);
    for (std::size_t i = 0; i < X.n_rows; ++i) out[i] += numbers_.bias;
}

template <class T>
double KernelExpansion<T>::score(const T* x) {
    similarities_.resize(rows_.size());
    kernel_row(kernel_, x, rows_, similarities_.data());
    return dot(coef_.data(), similarities_.data(), coef_.size());
}

template <class T>
double KernelExpansion<T>::self_similarity(const T* x) const {
    double value;
    const PackedRows<T, double> alone(Rows<T>{x, 1, rows_.n_features()});
    kernel_row(kernel_, x, alone, &value);
    return value;
}

template <class T>
void KernelExpansion<T>::add(const T* x, double weight) {
    rows_.append(x);
    coef_.push_back(weight);
    times_.push_back(numbers_.seen);
}

template <class T>
void KernelExpansion<T>::remove(std::size_t i) {
    rows_.swap_remove(i);
    coef_[i] = coef_.back();
    times_[i] = times_.back();
    coef_.pop_back();
    times_.pop_back();
}

template <class T>
std::size_t KernelExpansion<T>::oldest() const {
    return static_cast<std::size_t>(std::min_element(times_.begin(), times_.end()) - times_.begin());
}

template <class T>
void KernelExpansion<T>::step(const NormaRule& rule, const T* x, int y) {
    const bool in_margin = y * (score(x) + numbers_.bias) <= numbers_.margin;
    for (double& weight : coef_) weight *= 1.0 - rule.learning_rate * rule.regularization;
    numbers_.margin += rule.learning_rate * (in_margin ? rule.nu - 1.0 : rule.nu);
    if (in_margin) {
        add(x, rule.learning_rate * y);
        numbers_.bias += rule.learning_rate * y;
    }
    while (rule.memory && !times_.empty() && times_[oldest()] + rule.memory <= numbers_.seen) remove(oldest());
}

template <class T>
void KernelExpansion<T>::step(const RandomBudgetRule& rule, const T* x, int y) {
    if (y * score(x) > 0.0) return;
    ++numbers_.mistakes;
    if (coef_.size() >= rule.budget)
        remove(static_cast<std::size_t>(uniform_at(rule.seed, numbers_.seen) * static_cast<double>(coef_.size())));
    add(x, y);
}

template <class T>
void KernelExpansion<T>::step(const ForgetronRule& rule, const T* x, int y) {
    if (y * score(x) > 0.0) return;
    ++numbers_.mistakes;
    add(x, y);
    if (coef_.size() <= rule.budget) return;
    const std::size_t removed = oldest();
    std::vector<T> vector(rows_.n_features());
    rows_.copy_row(removed, vector.data());
    // psi(phi) = a phi^2 + b phi is the cost of removing a support vector after shrinking all weights by phi.
    // phi is the largest value in (0, 1] for which the sum of all costs stays below 15/32 of the number of mistakes.
    // `slack` is positive, because it was nonnegative before the current mistake.
    const double weight = std::abs(coef_[removed]), sign = coef_[removed] < 0.0 ? -1.0 : 1.0;
    const double margin = sign * score(vector.data());
    const double a = weight * weight - 2.0 * weight * margin, b = 2.0 * weight;
    const double slack = 15.0 / 32.0 * static_cast<double>(numbers_.mistakes) - numbers_.deviation;
    const double phi = a + b <= slack ? 1.0 : 2.0 * slack / (b + std::sqrt(b * b + 4.0 * a * slack));
    numbers_.deviation += (a * phi + b) * phi;
    for (double& coefficient : coef_) coefficient *= phi;
    remove(removed);
}

// Projects x onto the span of the support vectors, given the kernel values in similarities_.
// Writes the weights of the projection to projection_ and the result of the forward substitution to solution_.
// Returns the squared distance of x to the span.
template <class T>
double KernelExpansion<T>::project(const T* x) {
    const std::size_t n = rows_.size();
    solution_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        const double* row = factor_.data() + i * (i + 1) / 2;
        solution_[i] = (similarities_[i] - dot(row, solution_.data(), i)) / row[i];
    }
    projection_ = solution_;
    for (std::size_t i = n; i-- > 0;) {
        const double* row = factor_.data() + i * (i + 1) / 2;
        projection_[i] /= row[i];
        for (std::size_t j = 0; j < i; ++j) projection_[j] -= projection_[i] * row[j];
    }
    return std::max(0.0, self_similarity(x) - dot(solution_.data(), solution_.data(), n));
}

// Appends the row of the Cholesky factor for the last projected vector, which will be stored.
template <class T>
void KernelExpansion<T>::extend_factor(double residual) {
    factor_.insert(factor_.end(), solution_.begin(), solution_.end());
    factor_.push_back(std::sqrt(residual));
}

template <class T>
void KernelExpansion<T>::step(const ProjectronRule& rule, const T* x, int y) {
    // The state of a learner does not contain the factor, so the factor is recomputed after the state was restored.
    if (factor_.empty() && !coef_.empty()) {
        std::vector<T> vector(rows_.n_features());
        const PackedRows<T, double> all = std::move(rows_);
        rows_ = PackedRows<T, double>(all.n_features());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all.copy_row(i, vector.data());
            similarities_.resize(i);
            kernel_row(kernel_, vector.data(), rows_, similarities_.data());
            extend_factor(project(vector.data()));
            rows_.append(vector.data());
        }
    }
    const double achieved = y * score(x);
    if (achieved > 0.0 && !(rule.margin && achieved < 1.0)) return;
    const double squared = project(x), distance = std::sqrt(squared);
    const double length = dot(solution_.data(), solution_.data(), solution_.size());
    double weight = 0.0;  // multiplier of the projected sample
    if (achieved > 0.0) {
        const double loss = 1.0 - achieved, gain = loss - distance / rule.threshold;
        if (gain > 0.0 && length > 0.0) weight = std::min({loss / length, 2.0 * gain / length, 1.0});
    } else {
        ++numbers_.mistakes;
        // Without support vectors, there is no span to project onto.
        const double bound = coef_.empty() ? 0.0 : std::max(rule.threshold, kInSpan * std::sqrt(length));
        if (distance > bound) {
            extend_factor(squared);
            add(x, y);
            return;
        }
        weight = 1.0;
    }
    for (std::size_t i = 0; i < coef_.size(); ++i) coef_[i] += weight * y * projection_[i];
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
    template class KernelExpansion<T>;                                                             \
    template void KernelExpansion<T>::learn(Rows<T>, const std::int8_t*, const NormaRule&);        \
    template void KernelExpansion<T>::learn(Rows<T>, const std::int8_t*, const RandomBudgetRule&); \
    template void KernelExpansion<T>::learn(Rows<T>, const std::int8_t*, const ForgetronRule&);    \
    template void KernelExpansion<T>::learn(Rows<T>, const std::int8_t*, const ProjectronRule&);
STEELYARD_INSTANTIATE(double)
STEELYARD_INSTANTIATE(float)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard
