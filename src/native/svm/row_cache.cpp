#include "svm/row_cache.hpp"

#include <algorithm>

namespace steelyard {

namespace {

PackedRows<double> pack_members(Rows<double> rows, std::span<const std::uint32_t> members) {
    PackedRows<double> packed(rows.n_features, members.size());
    for (const std::uint32_t member : members) packed.append(rows.data + member * rows.n_features);
    return packed;
}

}  // namespace

RowCache::RowCache(const KernelSpec& spec, Rows<double> rows, std::span<const std::uint32_t> members,
                   std::size_t budget_bytes)
    : spec_(spec),
      rows_(rows),
      members_(members.begin(), members.end()),
      packed_(pack_members(rows, members)),
      budget_bytes_(budget_bytes),
      slot_of_(members.size(), -1) {}

std::size_t RowCache::capacity() const {
    return std::clamp<std::size_t>(budget_bytes_ / (sizeof(double) * members_.size()), 2,
                                   std::max<std::size_t>(2, members_.size()));
}

std::size_t RowCache::free_slot() {
    if (slots_.size() < capacity()) {
        slots_.push_back({aligned_buffer<double>(members_.size())});
        return slots_.size() - 1;
    }
    const auto oldest = std::min_element(slots_.begin(), slots_.end(),
                                         [](const Slot& a, const Slot& b) { return a.last_use < b.last_use; });
    slot_of_[oldest->owner] = -1;
    return static_cast<std::size_t>(oldest - slots_.begin());
}

const double* RowCache::row(std::size_t i) {
    if (slot_of_[i] < 0) {
        const std::size_t slot = free_slot();
        slots_[slot].owner = i;
        slot_of_[i] = static_cast<std::int32_t>(slot);
        kernel_row(spec_, rows_.data + members_[i] * rows_.n_features, packed_, slots_[slot].values.get());
    }
    Slot& slot = slots_[static_cast<std::size_t>(slot_of_[i])];
    slot.last_use = ++clock_;
    return slot.values.get();
}

void RowCache::narrow(std::span<const std::uint32_t> kept) {
    std::vector<std::int32_t> slot_of(kept.size(), -1);
    std::vector<Slot> slots;
    for (std::size_t k = 0; k < kept.size(); ++k) {
        members_[k] = members_[kept[k]];
        const std::int32_t old = slot_of_[kept[k]];
        if (old < 0) continue;
        Slot& slot = slots_[static_cast<std::size_t>(old)];
        AlignedBuffer<double> values = aligned_buffer<double>(kept.size());
        for (std::size_t j = 0; j < kept.size(); ++j) values[j] = slot.values[kept[j]];
        slot_of[k] = static_cast<std::int32_t>(slots.size());
        slots.push_back({std::move(values), k, slot.last_use});
        slot.values.reset();
    }
    members_.resize(kept.size());
    packed_ = pack_members(rows_, members_);
    slots_ = std::move(slots);
    slot_of_ = std::move(slot_of);
}

}  // namespace steelyard
