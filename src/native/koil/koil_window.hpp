// Some samples of a KOIL stream, which the machines go through each at its own pace. Part of koil.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/denormals.hpp"
#include "koil/koil.hpp"
#include "koil/koil_turns.hpp"
#include "simd/simd.hpp"

namespace steelyard {

// Samples whose kernel values are evaluated together; two tiles of rows at the widest level.
constexpr std::size_t kBatchRows = 8;

// A machine goes on as long as it can, so that its kernel matrix is in the cache meanwhile: those of all machines
// together are larger than the cache.
//
// There are two ways to a machine's kernel values: from its own vectors, or from the sums (distances, products) of
// the samples with all vectors of the ensemble, shared by the machines whose kernels follow from them. Both give the
// same bits. Sharing is the less work if the machines hold much the same vectors and most of them learn.
template <class T>
class KoilEnsemble<T>::Window {
  public:
    Window(KoilEnsemble& ensemble, const std::int8_t* signs, std::size_t n_rows, const KoilRule& rule)
        : ensemble_(ensemble),
          rule_(rule),
          signs_(signs),
          signs_stride_(n_rows),
          packed_(ensemble.n_features(), kWindowRows),
          turns_(ensemble.n_machines(), ensemble.n_kernels(), ensemble.seed_),
          tracks_(std::make_unique<Track[]>(ensemble.n_machines())),
          n_machines_(ensemble.n_machines()) {
        for (std::size_t index = 0; index < n_machines_; ++index) tracks_[index].batch.reset(ensemble.n_features());
        for (const KernelSpec& kernel : ensemble.kernels_)
            if (source_of(kernel) == sums_.size()) sums_.push_back({source(kernel), {}, false});
    }

    // To be called by one thread.
    void start(Rows<T> X, std::size_t begin) {
        rows_ = {X.data + begin * X.n_features, std::min(kWindowRows, X.n_rows - begin), X.n_features};
        begin_ = begin;
        n_shared_ = ensemble_.shared_.rows().size();
        n_left_.store(n_machines_, std::memory_order_relaxed);
        for (std::size_t index = 0; index < n_machines_; ++index) {
            tracks_[index].batch.forget();
            turns_.start(index, ensemble_.n_seen_, n_rows(), ensemble_.members_[index].machine.log_weight);
        }
        for (std::size_t s = 0; s < sums_.size(); ++s) {
            sums_[s].is_shared = sharing_pays(s);
            if (sums_[s].is_shared) rows_.n_rows = std::min(n_rows(), std::max(kBatchRows, kMostSums / n_shared_));
        }
        packed_.clear();
        for (Sums& sums : sums_) prepare(sums);
    }

    std::size_t n_rows() const { return rows_.n_rows; }

    // To be called by every thread: its part of what is shared.
    void evaluate_shared(unsigned thread, unsigned n_threads) {
        const std::size_t begin = n_rows() * thread / n_threads, end = n_rows() * (thread + 1) / n_threads;
        for (Sums& sums : sums_) {
            if (!sums.is_shared || begin == end) continue;
            const Rows<T> mine{row(begin), end - begin, rows_.n_features};
            T* out = sums.values.data() + begin * ld();
            kernel_rows(sums.source, mine, ensemble_.shared_.rows(), out, ld(), 1);
            kernel_rows(sums.source, mine, packed_, out + n_shared_, ld(), 1);
        }
    }

    // To be called by every thread: moves machines on until all are through. A thread prefers the same machines as
    // long as they can go on, since it has their kernel matrices in its cache.
    void go_through(unsigned thread, unsigned n_threads) {
        std::vector<std::size_t> own, others;
        for (std::size_t index = 0; index < n_machines_; ++index)
            (index % n_threads == thread ? own : others).push_back(index);
        while (n_left_.load(std::memory_order_acquire) > 0)
            if (!move_heaviest(own) && !move_heaviest(others)) std::this_thread::yield();
    }

    // To be called by one thread: the vectors that machines have taken and given up find their place in the table.
    void settle() {
        SharedRows<T>& shared = ensemble_.shared_;
        std::vector<std::uint32_t> ids(n_rows(), kNoVector);
        for (std::size_t index = 0; index < n_machines_; ++index)
            for (const Stored& stored : tracks_[index].stored) {
                const std::uint32_t stands = ensemble_.members_[index].machine.ids(stored.side)[stored.place];
                if (stands != n_shared_ + stored.sample) continue;  // it has been replaced since
                std::uint32_t& id = ids[stored.sample];
                if (id == kNoVector) id = shared.add(row(stored.sample));
                shared.hold(id);
            }
        for (std::size_t index = 0; index < n_machines_; ++index) {
            for (const Stored& stored : tracks_[index].stored) {
                std::uint32_t& id = ensemble_.members_[index].machine.ids(stored.side)[stored.place];
                if (id == n_shared_ + stored.sample) id = ids[stored.sample];
                if (stored.evicted < n_shared_) shared.release(stored.evicted);
            }
            tracks_[index].stored.clear();
        }
        for (const std::uint32_t id : ids)
            if (id != kNoVector) shared.release(id);  // held by machines alone
        ensemble_.n_seen_ += n_rows();
    }

  private:
    // What fetching a shared sum costs, in features of a distance.
    static constexpr double kFetchCost = 12.0;
    // A table of shared sums is to leave room in the cache for kernel matrices.
    static constexpr std::size_t kMostSums = 32768;

    // Kernel values of samples that a machine is expected to learn, with its vectors, and kept right while samples
    // replace some of them.
    struct Batch {
        AlignedVector<T> values;  // a row for each sample, and one for a sample that was not expected
        AlignedVector<T> among;   // of the samples with each other
        std::vector<T> rows;
        PackedRows<T> packed{0}, alone{0};
        std::size_t n_slots = 0, count = 0, next = 0;
        std::size_t samples[kBatchRows];
        const T* first = nullptr;  // the samples, one after the other: in X, or in `rows` if others lie between them
        bool among_known = false;

        void reset(std::size_t d) {
            rows.resize(kBatchRows * d);
            among.resize(kBatchRows * kBatchRows);
            packed = PackedRows<T>(d, kBatchRows);
            alone = PackedRows<T>(d, 1);
            alone.append(rows.data());
        }
        void forget() { count = next = 0; }
        T* row(std::size_t r) { return values.data() + r * n_slots; }
        Rows<T> all_rows(std::size_t d) const { return {first, count, d}; }
    };
    struct Stored {
        std::uint32_t sample, place, evicted;  // evicted: the id that stood there, if any
        int side;
    };
    // How a machine fares in the window.
    struct alignas(64) Track {
        std::atomic_flag taken;  // by a thread that moves it on
        Batch batch;
        std::vector<Stored> stored;
    };
    // Sums that some of the kernels follow from: of the samples with the shared rows, then with each other.
    struct Sums {
        KernelSpec source;
        AlignedVector<T> values;
        bool is_shared = false;
    };

    std::size_t ld() const { return n_shared_ + n_rows(); }
    const T* row(std::size_t i) const { return rows_.data + i * rows_.n_features; }

    // -- what is shared ---------------------------------------------------------------------------------------------

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

    void prepare(Sums& sums) {
        if (!sums.is_shared) return;
        while (packed_.size() < n_rows()) packed_.append(row(packed_.size()));
        sums.values.resize(n_rows() * ld());
    }

    bool sharing_pays(std::size_t s) const {
        if (n_machines_ == 1) return false;
        double wanted = 0.0;
        for (std::size_t index = 0; index < n_machines_; ++index) {
            const Member& member = ensemble_.members_[index];
            if (source_of(member.machine.kernel()) == s)
                wanted += turns_.chance(index) * static_cast<double>(member.rows[0].size() + member.rows[1].size());
        }
        const double d = static_cast<double>(rows_.n_features);
        return static_cast<double>(n_shared_ + kBatchRows) * d < wanted * (d - kFetchCost);
    }

    // -- one machine ------------------------------------------------------------------------------------------------

    // Of the machines that can go on the one of largest weight: who has the largest of all never waits, and the others
    // wait the less the more is known of it. Returns whether one got on; those that are through are dropped.
    bool move_heaviest(std::vector<std::size_t>& machines) {
        std::erase_if(machines, [&](std::size_t index) { return turns_.reached(index) == n_rows(); });
        std::vector<std::pair<double, std::size_t>> by_weight;
        for (const std::size_t index : machines) by_weight.emplace_back(-turns_.log_weight(index), index);
        std::sort(by_weight.begin(), by_weight.end());
        return std::any_of(by_weight.begin(), by_weight.end(), [&](const auto& next) { return move_on(next.second); });
    }

    // Whether the machine got on.
    bool move_on(std::size_t index) {
        Track& track = tracks_[index];
        if (turns_.reached(index) == n_rows() || track.taken.test_and_set(std::memory_order_acquire)) return false;
        const std::size_t begin = turns_.reached(index);
        const Denormals as_zero(false);  // once for many samples; kernel values are evaluated with them
        std::size_t i = begin;
        for (; i < n_rows(); ++i) {
            const KoilTurns::Turn turn = turns_.turn(index);
            if (turn == KoilTurns::Turn::wait) break;
            if (turn == KoilTurns::Turn::learn) learn(index, i);
            turns_.pass(index, ensemble_.members_[index].machine.log_weight);
        }
        track.taken.clear(std::memory_order_release);
        if (begin < i && i == n_rows()) n_left_.fetch_sub(1, std::memory_order_release);
        return begin < i;
    }

    void learn(std::size_t index, std::size_t i) {
        Member& member = ensemble_.members_[index];
        KoilMachine<T>& machine = member.machine;
        const int y = signs_[index / ensemble_.n_kernels() * signs_stride_ + begin_ + i];
        typename KoilMachine<T>::Sample sample{y, uniform_at(ensemble_.seed_, ensemble_.n_seen_ + i), nullptr, T(1)};
        typename KoilMachine<T>::Outcome outcome;
        machine.reserve(sample.side());
        fill_in(sample, index, i);
        machine.learn(sample, rule_, member, outcome);
        machine.log_weight -= rule_.weight_rate * outcome.loss;
        if (outcome.place != kNoVector) store(index, i, sample.side(), outcome);
        if (machine.needs_refresh()) machine.refresh(member);
    }

    void store(std::size_t index, std::size_t i, int side, const typename KoilMachine<T>::Outcome& outcome) {
        Member& member = ensemble_.members_[index];
        Track& track = tracks_[index];
        std::uint32_t& id = member.machine.ids(side)[outcome.place];
        const auto sample = static_cast<std::uint32_t>(i);
        track.stored.push_back({sample, outcome.place, outcome.evicted ? id : kNoVector, side});
        id = static_cast<std::uint32_t>(n_shared_) + sample;  // until all machines are through
        member.store(side, outcome.place, row(i));
        correct(track.batch, member, i, member.machine.slot(side, outcome.place));
    }

    // -- kernel values ----------------------------------------------------------------------------------------------

    // Kernel values of sample i with the vectors of a machine, and with itself.
    void fill_in(typename KoilMachine<T>::Sample& sample, std::size_t index, std::size_t i) {
        const Member& member = ensemble_.members_[index];
        Batch& batch = tracks_[index].batch;
        if (batch.n_slots != member.machine.n_slots()) {  // slots have moved, the values with them
            batch.forget();
            batch.n_slots = member.machine.n_slots();
            batch.values.assign((kBatchRows + 1) * batch.n_slots, T(0));
        }
        sample.similarities = similarities(batch, index, i);
        const KernelSpec& kernel = member.machine.kernel();
        const KernelKind kind = sum_kind(kernel.kind);
        if (kind == KernelKind::squared_distance || kind == KernelKind::cityblock) return;  // 1 with itself
        const Denormals kept(true);
        batch.alone.replace(0, row(i));
        kernel_row(kernel, row(i), batch.alone, &sample.self_similarity);
    }

    T* similarities(Batch& batch, std::size_t index, std::size_t i) {
        const Member& member = ensemble_.members_[index];
        const Sums& sums = sums_[source_of(member.machine.kernel())];
        T* unexpected = batch.row(kBatchRows);
        if (sums.is_shared) {
            take_shared(sums.values.data() + i * ld(), member.machine, unexpected);
            return unexpected;
        }
        while (batch.next < batch.count && batch.samples[batch.next] < i) ++batch.next;
        if (batch.next == batch.count) evaluate(batch, index, i);
        if (batch.samples[batch.next] == i) return batch.row(batch.next);
        evaluate({row(i), 1, rows_.n_features}, member, unexpected, batch.n_slots);
        return unexpected;
    }

    static void take_shared(const T* sums, const KoilMachine<T>& machine, T* out) {
        const Denormals kept(true);
        for (int s = 0; s < 2; ++s) {
            loops().online.of<T>().gather(sums, machine.ids(s), out + machine.slot(s, 0), machine.count(s));
            loops().kernel.finish<T>().from_sums(machine.kernel(), out + machine.slot(s, 0), machine.count(s));
        }
    }

    static void evaluate(Rows<T> rows, const Member& member, T* out, std::size_t ld) {
        const Denormals kept(true);
        for (int s = 0; s < 2; ++s)
            kernel_rows(member.machine.kernel(), rows, member.rows[s], out + member.machine.slot(s, 0), ld, 1);
    }

    // Sample i and those after it that the machine is expected to learn.
    void evaluate(Batch& batch, std::size_t index, std::size_t i) {
        const std::size_t d = rows_.n_features;
        batch.forget();
        batch.among_known = false;
        const double chance = turns_.chance(index);
        for (std::size_t later = i; later < n_rows() && batch.count < kBatchRows; ++later)
            if (later == i || turns_.draw(index, later) < chance) batch.samples[batch.count++] = later;
        batch.first = row(i);
        if (batch.samples[batch.count - 1] - i >= batch.count) {
            batch.first = batch.rows.data();
            for (std::size_t r = 0; r < batch.count; ++r)
                std::copy_n(row(batch.samples[r]), d, batch.rows.data() + r * d);
        }
        evaluate(batch.all_rows(d), ensemble_.members_[index], batch.values.data(), batch.n_slots);
    }

    // Sample i stands in a slot of the machine: the values of the samples to come change there.
    void correct(Batch& batch, const Member& member, std::size_t i, std::size_t slot) {
        if (batch.count == 0 || batch.samples[batch.count - 1] <= i) return;
        const KernelSpec& kernel = member.machine.kernel();
        if (!batch.among_known) {
            const Denormals kept(true);
            const Rows<T> rows = batch.all_rows(rows_.n_features);
            batch.packed.clear();
            for (std::size_t r = 0; r < batch.count; ++r) batch.packed.append(rows.data + r * rows.n_features);
            kernel_rows(kernel, rows, batch.packed, batch.among.data(), kBatchRows, 1);
            batch.among_known = true;
        }
        T alone[kBatchRows];
        const bool expected = batch.samples[batch.next] == i;
        if (!expected) {
            const Denormals kept(true);
            kernel_row(kernel, row(i), batch.packed, alone);
        }
        const T* values = expected ? batch.among.data() + batch.next * kBatchRows : alone;
        for (std::size_t r = batch.next + expected; r < batch.count; ++r) batch.row(r)[slot] = values[r];
    }

    KoilEnsemble& ensemble_;
    const KoilRule& rule_;
    const std::int8_t* signs_;
    std::size_t signs_stride_, begin_ = 0;
    Rows<T> rows_{};
    PackedRows<T> packed_;      // the samples
    std::size_t n_shared_ = 0;  // shared rows as the window begins; the samples are counted on from there
    KoilTurns turns_;
    std::unique_ptr<Track[]> tracks_;
    std::size_t n_machines_;
    std::vector<Sums> sums_;
    std::atomic<std::size_t> n_left_{0};  // machines that are not yet through
};

}  // namespace steelyard
