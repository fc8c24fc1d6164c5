// A few samples of a KOIL stream and their kernel values with the vectors that the machines hold. Part of koil.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "steelyard/koil.hpp"
#include "steelyard/random.hpp"
#include "steelyard/simd.hpp"

namespace steelyard {

// Samples whose kernel values are evaluated together; two tiles of rows at the widest level.
constexpr std::size_t kBlockRows = 16;

// Values are evaluated for several samples at once, as far as the machine is going to learn them by what is known of
// its chances, and kept right while samples replace some of the vectors.
//
// There are two ways to a machine's values: from its own vectors, or from the sums (distances, products) of the
// sample with all vectors of the ensemble, shared by the machines whose kernels follow from them. Both give the same
// bits. Sharing is the less work if the machines hold much the same vectors and most of them learn.
template <class T>
class KoilEnsemble<T>::Block {
  public:
    Block(const KoilEnsemble& ensemble, const std::int8_t* signs, std::size_t n_rows)
        : ensemble_(ensemble),
          signs_(signs),
          signs_stride_(n_rows),
          packed_(ensemble.n_features(), kBlockRows),
          members_(ensemble.members_.size()),
          chances_(members_.size(), 1.0) {
        for (Values& mine : members_) mine.picked.resize(kBlockRows * ensemble.n_features());
        for (const KernelSpec& kernel : ensemble.kernels_)
            if (source_of(kernel) == sums_.size()) sums_.push_back({.source = source(kernel)});
    }

    // With several threads all that machines ask for together is evaluated before they do so.
    void start(Rows<T> X, std::size_t begin, bool several_threads) {
        rows_ = {X.data + begin * X.n_features, std::min(kBlockRows, X.n_rows - begin), X.n_features};
        begin_ = begin;
        first_seen_ = ensemble_.n_seen_;
        packed_.clear();
        for (Values& mine : members_) mine.forget();
        for (Sums& sums : sums_) sums.with_samples_known = sums.with_shared_known = false;
        for (std::size_t s = 0; s < sums_.size(); ++s) sums_[s].is_shared = sharing_pays(s);
        if (!several_threads) return;
        for (const Member& member : ensemble_.members_) {
            Sums& sums = sums_of(member);
            with_samples(sums);
            if (sums.is_shared) with_shared(sums, 0);
        }
    }

    std::size_t n_rows() const { return rows_.n_rows; }
    const T* row(std::size_t i) const { return rows_.data + i * rows_.n_features; }

    void set_chances(std::size_t target, double largest_log_weight) {
        const std::size_t m = ensemble_.kernels_.size();
        for (std::size_t member = target * m; member < (target + 1) * m; ++member)
            chances_[member] = std::exp(ensemble_.members_[member].machine.log_weight - largest_log_weight);
    }

    bool takes_part(std::size_t member, std::size_t i) const {
        const std::size_t m = ensemble_.kernels_.size();
        return m == 1 || uniform_at(ensemble_.seed_, first_seen_ + i, 1 + member % m) < chances_[member];
    }

    KoilMachine::Sample sample_for(std::size_t target, std::size_t i) const {
        const int y = signs_[target * signs_stride_ + begin_ + i];
        return {y, uniform_at(ensemble_.seed_, first_seen_ + i), nullptr, 0.0};
    }

    // Kernel values of sample i with the vectors of a machine, and with itself.
    void fill_in(KoilMachine::Sample& sample, std::size_t index, std::size_t i) {
        const Member& member = ensemble_.members_[index];
        Values& mine = members_[index];
        if (mine.n_slots != member.machine.n_slots()) {  // slots have moved, the values with them
            mine.forget();
            mine.n_slots = member.machine.n_slots();
            mine.values.assign(kBlockRows * mine.n_slots, 0.0);
        }
        if (mine.where[i] == kUnknown) {
            if (mine.count == kBlockRows) mine.forget();
            if (sums_of(member).is_shared)
                take_shared(mine, member, i);
            else
                evaluate(mine, member, index, i);
        }
        sample.similarities = mine.values.data() + mine.where[i] * mine.n_slots;
        sample.self_similarity = with_itself(member, i);
    }

    // Sample i stands in a slot of a machine.
    void stored(std::size_t index, std::size_t i, std::size_t slot) {
        Values& mine = members_[index];
        const Member& member = ensemble_.members_[index];
        double values[kBlockRows];
        if (std::all_of(mine.where + i + 1, mine.where + n_rows(), [](std::uint8_t row) { return row == kUnknown; }))
            return;
        std::copy_n(with_samples(sums_of(member)) + i * kBlockRows, kBlockRows, values);
        loops().kernel.finish_f64.from_sums(member.machine.kernel(), values, n_rows());
        for (std::size_t later = i + 1; later < n_rows(); ++later)
            if (mine.where[later] != kUnknown) mine.values[mine.where[later] * mine.n_slots + slot] = values[later];
    }

    // Sample i has become the shared row `id`.
    void shared(std::size_t i, std::uint32_t id) {
        for (Sums& sums : sums_) {
            if (!sums.with_shared_known || i + 1 == n_rows()) continue;
            const double* own = with_samples(sums);
            for (std::size_t later = i + 1; later < n_rows(); ++later)
                sums.with_shared[later * sums.ld + id] = own[later * kBlockRows + i];
        }
    }

  private:
    static constexpr std::uint8_t kUnknown = 255;
    // What fetching a shared sum costs, in features of a distance.
    static constexpr double kFetchCost = 12.0;

    // Kernel values of some of the samples with the vectors of one machine.
    struct Values {
        AlignedVector<double> values;
        std::vector<T> picked;  // room for the samples that are evaluated together
        std::size_t n_slots = 0, count = 0;
        std::uint8_t where[kBlockRows];  // the row of `values` that holds a sample's

        void forget() {
            count = 0;
            std::memset(where, kUnknown, sizeof where);
        }
    };
    // Sums that some of the kernels follow from.
    struct Sums {
        KernelSpec source;
        AlignedVector<double> with_samples;  // samples by samples
        AlignedVector<double> with_shared;   // samples by shared rows
        std::size_t ld = 0;
        bool is_shared = false, with_samples_known = false, with_shared_known = false;
    };

    static KernelSpec source(const KernelSpec& kernel) {
        return {.kind = sum_kind(kernel.kind), .table = kernel.table};
    }

    std::size_t source_of(const KernelSpec& kernel) const {
        const KernelSpec wanted = source(kernel);
        const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const Sums& known) {
            return known.source.kind == wanted.kind && known.source.table == wanted.table;
        });
        return static_cast<std::size_t>(found - sums_.begin());
    }

    Sums& sums_of(const Member& member) { return sums_[source_of(member.machine.kernel())]; }

    bool sharing_pays(std::size_t source) const {
        if (members_.size() == 1) return false;
        double wanted = 0.0;
        for (std::size_t index = 0; index < members_.size(); ++index) {
            const Member& member = ensemble_.members_[index];
            if (source_of(member.machine.kernel()) == source)
                wanted += chances_[index] * static_cast<double>(member.rows[0].size() + member.rows[1].size());
        }
        const double d = static_cast<double>(rows_.n_features);
        return static_cast<double>(ensemble_.shared_.rows().size()) * d < wanted * (d - kFetchCost);
    }

    // Evaluates sample i and those after it that the machine seems to be going to learn.
    void evaluate(Values& mine, const Member& member, std::size_t index, std::size_t i) {
        const std::size_t d = rows_.n_features, first = mine.count;
        const T* wanted = row(i);
        std::size_t n = 0;
        for (std::size_t later = i; later < n_rows() && mine.count < kBlockRows; ++later)
            if (later == i || (mine.where[later] == kUnknown && takes_part(index, later))) {
                std::copy_n(row(later), d, mine.picked.data() + n++ * d);
                mine.where[later] = static_cast<std::uint8_t>(mine.count++);
            }
        if (n < n_rows() - i) wanted = mine.picked.data();
        for (int s = 0; s < 2; ++s)
            kernel_rows(member.machine.kernel(), Rows<T>{wanted, n, d}, member.rows[s],
                        mine.values.data() + first * mine.n_slots + member.machine.slot(s, 0), mine.n_slots, 1);
    }

    void take_shared(Values& mine, const Member& member, std::size_t i) {
        const KoilMachine& machine = member.machine;
        const double* sums = with_shared(sums_of(member), i);
        mine.forget();  // a shared value is fetched when its turn has come, and not needed again
        mine.where[i] = static_cast<std::uint8_t>(mine.count++);
        for (int s = 0; s < 2; ++s) {
            double* out = mine.values.data() + mine.where[i] * mine.n_slots + machine.slot(s, 0);
            loops().online.gather(sums, machine.ids(s), out, machine.count(s));
            loops().kernel.finish_f64.from_sums(machine.kernel(), out, machine.count(s));
        }
    }

    double with_itself(const Member& member, std::size_t i) {
        const KernelSpec& kernel = member.machine.kernel();
        const KernelKind kind = sum_kind(kernel.kind);
        if (kind == KernelKind::squared_distance || kind == KernelKind::cityblock) return 1.0;
        double value = with_samples(sums_of(member))[i * kBlockRows + i];
        loops().kernel.finish_f64.from_sums(kernel, &value, 1);
        return value;
    }

    const double* with_samples(Sums& mine) {
        if (!mine.with_samples_known) {
            while (packed_.size() < n_rows()) packed_.append(row(packed_.size()));
            mine.with_samples.resize(kBlockRows * kBlockRows);
            kernel_rows(mine.source, rows_, packed_, mine.with_samples.data(), kBlockRows, 1);
            mine.with_samples_known = true;
        }
        return mine.with_samples.data();
    }

    // Sums of sample i with all shared rows.
    const double* with_shared(Sums& mine, std::size_t i) {
        const PackedRows<T, double>& shared = ensemble_.shared_.rows();
        if (!mine.with_shared_known) {
            mine.ld = shared.size() + n_rows();  // each sample can add one shared row
            mine.with_shared.resize(kBlockRows * mine.ld);
            kernel_rows(mine.source, Rows<T>{row(i), n_rows() - i, rows_.n_features}, shared,
                        mine.with_shared.data() + i * mine.ld, mine.ld, 1);
            mine.with_shared_known = true;
        }
        return mine.with_shared.data() + i * mine.ld;
    }

    const KoilEnsemble& ensemble_;
    const std::int8_t* signs_;
    std::size_t signs_stride_, begin_ = 0;
    std::uint64_t first_seen_ = 0;
    Rows<T> rows_{};
    PackedRows<T, double> packed_;
    std::vector<Values> members_;
    std::vector<double> chances_;  // of each machine to learn the sample at hand
    std::vector<Sums> sums_;
};

}  // namespace steelyard
