#include "proximal/single_row_model.hpp"

#include <algorithm>
#include <numeric>

#include "proximal/scores.hpp"

namespace steelyard {

SingleRowModel::SingleRowModel(ExactSums& sums, std::uint64_t version, std::vector<std::int32_t> slots,
                               const PlaneRule& rule)
    : sums_(sums),
      slots_(std::move(slots)),
      rule_(rule),
      n_features_(sums.read([](const ExactState& state) { return state.n_features; })),
      version_(version),
      coef_(n_planes_of(slots_.size()) * n_features_),
      intercept_(n_planes_of(slots_.size())),
      places_(std::max<std::size_t>(2, slots_.size())) {
    std::iota(places_.begin(), places_.end(), 0);
}

bool SingleRowModel::learn(std::span<const double> row, std::int32_t slot) {
    if (std::find(slots_.begin(), slots_.end(), slot) == slots_.end()) return false;
    std::uint64_t version = version_.load();
    const ExactBatch<double> batch{{row.data(), 1, n_features_}, {&slot, 1}, {}};
    try {
        if (!sums_.update_at(version, [&](ExactState& state) { add_rows(state, batch, 1); })) return false;
    } catch (const BadValues&) {  // the general path will raise the error
        return false;
    }
    version_.store(version);
    return true;
}

bool SingleRowModel::solve() {
    const std::uint64_t version = version_.load();
    if (sums_.version() != version) return false;
    if (solved_ == version) return true;
    solved_.reset();
    const std::optional<ExactView> view = sums_.view_at(version, slots_, 1);
    double slope;
    if (!view || !solve_planes(*view, rule_, coef_.data(), intercept_.data(), &slope)) return false;
    solved_ = version;
    return true;
}

std::optional<std::size_t> SingleRowModel::winner(std::span<const double> row) {
    const std::scoped_lock lock(mutex_);
    if (!solve()) return std::nullopt;
    const Planes planes{coef_, intercept_};
    const std::span<const std::uint64_t> places(places_.data(), intercept_.size() == 1 ? 2 : intercept_.size());
    std::uint64_t place = 0;
    if (!linear_labels<double>({row.data(), 1, n_features_}, planes, places, &place, 1)) return std::nullopt;
    return std::min<std::size_t>(place, slots_.size() - 1);
}

}  // namespace steelyard
