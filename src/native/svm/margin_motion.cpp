#include "svm/margin_motion.hpp"

#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Members of the margin set whose step lengths differ by less than this fraction reach their bounds in one step.
constexpr double kSameMoment = 1e-12;

}  // namespace

void MarginMotion::take_out(const SvmState& state) {
    const std::size_t m = state.margin.size();
    for (auto* values : {&z_, &lower_, &upper_}) values->resize(m);
    for (std::size_t k = 0; k < m; ++k) {
        const std::uint32_t i = state.margin[k];
        z_[k] = state.z[i];
        lower_[k] = state.lower[i];
        upper_[k] = state.upper[i];
    }
}

void MarginMotion::put_back(SvmState& state) const {
    for (std::size_t k = 0; k < z_.size(); ++k) state.z[state.margin[k]] = z_[k];
}

double MarginMotion::first_hit(double limit) {
    hits_.clear();
    room_.resize(z_.size());
    const double step = loops().solver.steps_to_bounds(z_.data(), lower_.data(), upper_.data(), direction.data(),
                                                       room_.size(), room_.data());
    if (!(step < limit)) return limit;
    for (std::size_t k = 0; k < room_.size(); ++k)
        if (room_[k] <= step * (1.0 + kSameMoment)) hits_.push_back(k);
    return step;
}

void MarginMotion::advance(double step) {
    loops().solver.move_within(step, direction.data(), lower_.data(), upper_.data(), z_.data(), z_.size());
}

double MarginMotion::nearer_bound(std::size_t member) const {
    const double z = z_[member], lower = lower_[member], upper = upper_[member];
    return z - lower < upper - z ? lower : upper;
}

void MarginMotion::drop(std::size_t member) {
    for (auto* values : {&z_, &lower_, &upper_}) values->erase(values->begin() + static_cast<std::ptrdiff_t>(member));
}

}  // namespace steelyard
