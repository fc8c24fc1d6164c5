#include "koil/koil_matrix.hpp"

#include <algorithm>

#include "simd/simd.hpp"

namespace steelyard {

template <class Real>
void KoilMatrix<Real>::grow(std::size_t capacity, const Counts& counts) {
    const std::size_t old_capacity = capacity_, old_stride = stride_;
    capacity_ = capacity;
    // Use an odd number of cache lines per row, so that entries of one column map to different cache sets.
    stride_ = (2 * capacity_ / kGroup | 1) * kGroup;
    AlignedVector<Real> values(is_kept() ? 2 * capacity_ * stride_ : 0);
    for (std::size_t s = 0; s < 2 && !values.empty(); ++s)
        for (std::size_t i = 0; i < counts[s]; ++i)
            for (std::size_t t = 0; t < 2; ++t)
                std::copy_n(values_.data() + (s * old_capacity + i) * old_stride + t * old_capacity, counts[t],
                            values.data() + (s * capacity + i) * stride_ + t * capacity);
    values_ = std::move(values);
}

template <class Real>
void KoilMatrix<Real>::write_row(std::size_t at, const Real* values, const Counts& counts) {
    if (at != fresh_end_ || at % kGroup == 0) complete_columns(counts);
    std::copy_n(values, 2 * capacity_, row(at));
    if (fresh_begin_ == fresh_end_) fresh_begin_ = at;
    fresh_end_ = at + 1;
}

template <class Real>
void KoilMatrix<Real>::write_row_and_column(std::size_t at, const Real* values, const Counts& counts) {
    std::copy_n(values, 2 * capacity_, row(at));
    for (std::size_t s = 0; s < 2; ++s)
        for (std::size_t other = s * capacity_; other < s * capacity_ + counts[s]; ++other)
            row(other)[at] = values[other];
}

template <class Real>
void KoilMatrix<Real>::complete_row(std::size_t at) {
    const bool is_fresh = fresh_begin_ <= at && at < fresh_end_;
    for (std::size_t fresh = is_fresh ? at + 1 : fresh_begin_; fresh < fresh_end_; ++fresh)
        row(at)[fresh] = row(fresh)[at];
}

// Writes the missing columns, one group of slots at a time.
// The rows of the new vectors already contain some of the values, so these rows are completed one by one.
template <class Real>
void KoilMatrix<Real>::complete_columns(const Counts& counts) {
    if (fresh_begin_ == fresh_end_) return;
    if (fresh_end_ - fresh_begin_ <= kMaxSingleColumns) return complete_one_by_one(counts);
    const std::size_t group = fresh_begin_ / kGroup * kGroup, after = group + kGroup;
    const auto complete = [&](std::size_t begin, std::size_t end) {
        if (begin < end)
            loops().online.of<Real>().transpose(row(group) + begin, row(begin) + group, stride_, end - begin);
    };
    for (std::size_t s = 0; s < 2; ++s) {
        const std::size_t begin = s * capacity_, end = begin + rounded_up(counts[s]);
        complete(begin, std::min(group, end));
        complete(std::max(begin, after), end);
    }
    for (std::size_t at = group; at < after; ++at) complete_row(at);
    fresh_begin_ = fresh_end_ = 0;
}

template <class Real>
void KoilMatrix<Real>::complete_one_by_one(const Counts& counts) {
    for (std::size_t fresh = fresh_begin_; fresh < fresh_end_; ++fresh) {
        const Real* values = row(fresh);
        for (std::size_t s = 0; s < 2; ++s)
            for (std::size_t at = s * capacity_; at < s * capacity_ + counts[s]; ++at)
                if (at < fresh_begin_ || at >= fresh_end_) row(at)[fresh] = values[at];
    }
    for (std::size_t at = fresh_begin_; at < fresh_end_; ++at) complete_row(at);
    fresh_begin_ = fresh_end_ = 0;
}

template class KoilMatrix<double>;
template class KoilMatrix<float>;

}  // namespace steelyard
