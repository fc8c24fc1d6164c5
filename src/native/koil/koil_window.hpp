// Window of a KOIL stream: a block of samples that the models of an ensemble process independently of each other.
// The header is included only by koil.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/denormals.hpp"
#include "koil/koil.hpp"
#include "koil/koil_schedule.hpp"
#include "simd/simd.hpp"

namespace steelyard {

// Number of samples whose kernel values are computed together: two tiles of rows at the widest SIMD level.
constexpr std::size_t kBatchRows = 8;

// Training of all models of an ensemble on one window of samples.
// A model advances as far as possible before the next model runs, so that its kernel matrix stays in the cache.
// The kernel matrices of all models together are larger than the cache.
//
// Kernel values of a model are computed from its own vectors or from shared sums (distances or products).
// Shared sums are computed once for all vectors of the ensemble and used by all models with suitable kernels.
// Own and shared sums give bit-identical results.
// Sharing is less work if most models store the same vectors and learn each sample.
template <class T>
class KoilEnsemble<T>::Window {
  public:
    Window(KoilEnsemble& ensemble, const std::int8_t* signs, std::size_t n_rows, const KoilRule& rule)
        : ensemble_(ensemble),
          rule_(rule),
          signs_(signs),
          signs_stride_(n_rows),
          packed_(ensemble.n_features(), kWindowRows),
          schedule_(ensemble.n_machines(), ensemble.n_kernels(), ensemble.seed_),
          tracks_(std::make_unique<Track[]>(ensemble.n_machines())),
          n_machines_(ensemble.n_machines()) {
        for (std::size_t index = 0; index < n_machines_; ++index) tracks_[index].batch.reset(ensemble.n_features());
        for (const KernelSpec& kernel : ensemble.kernels_)
            if (source_of(kernel) == sums_.size()) sums_.push_back({source(kernel), {}, false});
    }

    // Starts the window. One thread calls this function.
    void start(Rows<T> X, std::size_t begin) {
        rows_ = {X.data + begin * X.n_features, std::min(kWindowRows, X.n_rows - begin), X.n_features};
        begin_ = begin;
        n_shared_ = ensemble_.shared_.rows().size();
        n_left_.store(n_machines_, std::memory_order_relaxed);
        for (std::size_t index = 0; index < n_machines_; ++index) {
            tracks_[index].batch.clear();
            schedule_.start(index, ensemble_.n_seen_, n_rows(), ensemble_.members_[index].machine.log_weight);
        }
        for (std::size_t s = 0; s < sums_.size(); ++s) {
            sums_[s].is_shared = sharing_pays(s);
            if (sums_[s].is_shared) rows_.n_rows = std::min(n_rows(), std::max(kBatchRows, kMaxSums / n_shared_));
        }
        packed_.clear();
        for (Sums& sums : sums_) prepare(sums);
    }

    std::size_t n_rows() const { return rows_.n_rows; }

    // Computes this thread's part of the shared sums. Every thread calls this function.
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

    // Advances models until all models have finished the window. Every thread calls this function.
    // A thread prefers the models that it advanced before, because their kernel matrices are in its cache.
    void process(unsigned thread, unsigned n_threads) {
        std::vector<std::size_t> own, others;
        for (std::size_t index = 0; index < n_machines_; ++index)
            (index % n_threads == thread ? own : others).push_back(index);
        while (n_left_.load(std::memory_order_acquire) > 0)
            if (!advance_heaviest(own) && !advance_heaviest(others)) std::this_thread::yield();
    }

    // Updates the shared table after models have stored and removed vectors. One thread calls this function.
    void commit() {
        SharedRows<T>& shared = ensemble_.shared_;
        std::vector<std::uint32_t> ids(n_rows(), kNoVector);
        for (std::size_t index = 0; index < n_machines_; ++index)
            for (const Stored& stored : tracks_[index].stored) {
                const std::uint32_t current = ensemble_.members_[index].machine.ids(stored.side)[stored.position];
                if (current != n_shared_ + stored.sample) continue;  // the vector has already been replaced
                std::uint32_t& id = ids[stored.sample];
                if (id == kNoVector) id = shared.add(row(stored.sample));
                shared.hold(id);
            }
        for (std::size_t index = 0; index < n_machines_; ++index) {
            for (const Stored& stored : tracks_[index].stored) {
                std::uint32_t& id = ensemble_.members_[index].machine.ids(stored.side)[stored.position];
                if (id == n_shared_ + stored.sample) id = ids[stored.sample];
                if (stored.evicted < n_shared_) shared.release(stored.evicted);
            }
            tracks_[index].stored.clear();
        }
        for (const std::uint32_t id : ids)
            if (id != kNoVector) shared.release(id);  // from here on, only models hold references
        ensemble_.n_seen_ += n_rows();
    }

  private:
    // Cost of reading a shared sum, in units of the cost of one feature in a distance.
    static constexpr double kFetchCost = 12.0;
    // Maximum number of shared sums: the table must leave space in the cache for kernel matrices.
    static constexpr std::size_t kMaxSums = 32768;

    // Kernel values of the vectors of a model with the samples that the model will probably learn.
    // The kernel values are updated when a sample replaces a vector.
    struct Batch {
        AlignedVector<T> values;    // one row per sample of the batch, and one row for samples outside the batch
        AlignedVector<T> pairwise;  // kernel values of all pairs of samples of the batch
        std::vector<T> rows;
        PackedRows<T> packed{0}, single{0};
        std::size_t n_slots = 0, count = 0, next = 0;
        std::size_t samples[kBatchRows];
        // First sample of the batch. The samples are contiguous in X or copied to `rows`.
        const T* first = nullptr;
        bool has_pairwise = false;

        void reset(std::size_t d) {
            rows.resize(kBatchRows * d);
            pairwise.resize(kBatchRows * kBatchRows);
            packed = PackedRows<T>(d, kBatchRows);
            single = PackedRows<T>(d, 1);
            single.append(rows.data());
        }
        void clear() { count = next = 0; }
        T* row(std::size_t r) { return values.data() + r * n_slots; }
        Rows<T> all_rows(std::size_t d) const { return {first, count, d}; }
    };
    struct Stored {
        std::uint32_t sample, position, evicted;  // `evicted` is the id of the replaced vector, or kNoVector
        int side;
    };
    // Progress of a model in the window.
    struct alignas(64) Track {
        std::atomic_flag taken;  // set while a thread advances the model
        Batch batch;
        std::vector<Stored> stored;
    };
    // Distances or products from which some of the kernels are computed.
    // `values` has the sums of new samples with stored rows, followed by the sums of pairs of new samples.
    struct Sums {
        KernelSpec source;
        AlignedVector<T> values;
        bool is_shared = false;
    };

    std::size_t ld() const { return n_shared_ + n_rows(); }
    const T* row(std::size_t i) const { return rows_.data + i * rows_.n_features; }

    // -- computation of shared sums ---------------------------------------------------------------------------------

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
                wanted +=
                    schedule_.probability(index) * static_cast<double>(member.rows[0].size() + member.rows[1].size());
        }
        const double d = static_cast<double>(rows_.n_features);
        return static_cast<double>(n_shared_ + kBatchRows) * d < wanted * (d - kFetchCost);
    }

    // -- advancing one model --------------------------------------------------------------------------------------

    // Removes finished models from the list.
    // Tries the other models in order of decreasing weight and advances the first model that need not wait.
    // Returns whether a model advanced. The model with the largest weight never waits.
    // The further the model with the largest weight has advanced, the less the others wait.
    bool advance_heaviest(std::vector<std::size_t>& machines) {
        std::erase_if(machines, [&](std::size_t index) { return schedule_.reached(index) == n_rows(); });
        std::vector<std::pair<double, std::size_t>> by_weight;
        for (const std::size_t index : machines) by_weight.emplace_back(-schedule_.log_weight(index), index);
        std::sort(by_weight.begin(), by_weight.end());
        return std::any_of(by_weight.begin(), by_weight.end(), [&](const auto& next) { return advance(next.second); });
    }

    // Advances one model. Returns false if the model must wait.
    bool advance(std::size_t index) {
        Track& track = tracks_[index];
        if (schedule_.reached(index) == n_rows() || track.taken.test_and_set(std::memory_order_acquire)) return false;
        const std::size_t begin = schedule_.reached(index);
        // Set the floating-point mode once for many samples. Kernel values are computed with denormals preserved.
        const Denormals as_zero(false);
        std::size_t i = begin;
        for (; i < n_rows(); ++i) {
            const KoilSchedule::Decision decision = schedule_.decide(index);
            if (decision == KoilSchedule::Decision::wait) break;
            if (decision == KoilSchedule::Decision::learn) learn(index, i);
            schedule_.pass(index, ensemble_.members_[index].machine.log_weight);
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
        compute_similarities(sample, index, i);
        machine.learn(sample, rule_, member, outcome);
        machine.log_weight -= rule_.weight_rate * outcome.loss;
        if (outcome.position != kNoVector) store(index, i, sample.side(), outcome);
        if (machine.needs_refresh()) machine.refresh(member);
    }

    void store(std::size_t index, std::size_t i, int side, const typename KoilMachine<T>::Outcome& outcome) {
        Member& member = ensemble_.members_[index];
        Track& track = tracks_[index];
        std::uint32_t& id = member.machine.ids(side)[outcome.position];
        const auto sample = static_cast<std::uint32_t>(i);
        track.stored.push_back({sample, outcome.position, outcome.evicted ? id : kNoVector, side});
        id = static_cast<std::uint32_t>(n_shared_) + sample;  // temporary id of the sample; commit() replaces it
        member.store(side, outcome.position, row(i));
        update_batch(track.batch, member, i, member.machine.slot(side, outcome.position));
    }

    // -- computation of kernel values -------------------------------------------------------------------------------

    // Computes the kernel values of sample i with the vectors of a model and with itself.
    void compute_similarities(typename KoilMachine<T>::Sample& sample, std::size_t index, std::size_t i) {
        const Member& member = ensemble_.members_[index];
        Batch& batch = tracks_[index].batch;
        if (batch.n_slots != member.machine.n_slots()) {  // the slots were renumbered
            batch.clear();
            batch.n_slots = member.machine.n_slots();
            batch.values.assign((kBatchRows + 1) * batch.n_slots, T(0));
        }
        sample.similarities = similarities(batch, index, i);
        const KernelSpec& kernel = member.machine.kernel();
        const KernelKind kind = sum_kind(kernel.kind);
        // Kernels that are computed from distances have k(x, x) = 1.
        if (kind == KernelKind::squared_distance || kind == KernelKind::cityblock) return;
        const Denormals kept(true);
        batch.single.replace(0, row(i));
        kernel_row(kernel, row(i), batch.single, &sample.self_similarity);
    }

    T* similarities(Batch& batch, std::size_t index, std::size_t i) {
        const Member& member = ensemble_.members_[index];
        const Sums& sums = sums_[source_of(member.machine.kernel())];
        T* extra = batch.row(kBatchRows);
        if (sums.is_shared) {
            gather_shared(sums.values.data() + i * ld(), member.machine, extra);
            return extra;
        }
        while (batch.next < batch.count && batch.samples[batch.next] < i) ++batch.next;
        if (batch.next == batch.count) evaluate(batch, index, i);
        if (batch.samples[batch.next] == i) return batch.row(batch.next);
        evaluate({row(i), 1, rows_.n_features}, member, extra, batch.n_slots);
        return extra;
    }

    static void gather_shared(const T* sums, const KoilMachine<T>& machine, T* out) {
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

    // Computes the kernel values of a batch: sample i and later samples that the model will probably learn.
    void evaluate(Batch& batch, std::size_t index, std::size_t i) {
        const std::size_t d = rows_.n_features;
        batch.clear();
        batch.has_pairwise = false;
        const double probability = schedule_.probability(index);
        for (std::size_t later = i; later < n_rows() && batch.count < kBatchRows; ++later)
            if (later == i || schedule_.draw(index, later) < probability) batch.samples[batch.count++] = later;
        batch.first = row(i);
        if (batch.samples[batch.count - 1] - i >= batch.count) {
            batch.first = batch.rows.data();
            for (std::size_t r = 0; r < batch.count; ++r)
                std::copy_n(row(batch.samples[r]), d, batch.rows.data() + r * d);
        }
        evaluate(batch.all_rows(d), ensemble_.members_[index], batch.values.data(), batch.n_slots);
    }

    // Updates the batch after sample i has been stored in a slot of the model.
    void update_batch(Batch& batch, const Member& member, std::size_t i, std::size_t slot) {
        if (batch.count == 0 || batch.samples[batch.count - 1] <= i) return;
        const KernelSpec& kernel = member.machine.kernel();
        if (!batch.has_pairwise) {
            const Denormals kept(true);
            const Rows<T> rows = batch.all_rows(rows_.n_features);
            batch.packed.clear();
            for (std::size_t r = 0; r < batch.count; ++r) batch.packed.append(rows.data + r * rows.n_features);
            kernel_rows(kernel, rows, batch.packed, batch.pairwise.data(), kBatchRows, 1);
            batch.has_pairwise = true;
        }
        T single[kBatchRows];
        const bool in_batch = batch.samples[batch.next] == i;
        if (!in_batch) {
            const Denormals kept(true);
            kernel_row(kernel, row(i), batch.packed, single);
        }
        const T* values = in_batch ? batch.pairwise.data() + batch.next * kBatchRows : single;
        for (std::size_t r = batch.next + in_batch; r < batch.count; ++r) batch.row(r)[slot] = values[r];
    }

    KoilEnsemble& ensemble_;
    const KoilRule& rule_;
    const std::int8_t* signs_;
    std::size_t signs_stride_, begin_ = 0;
    Rows<T> rows_{};
    PackedRows<T> packed_;      // the samples of the window
    std::size_t n_shared_ = 0;  // number of shared rows at the start of the window; temporary ids start here
    KoilSchedule schedule_;
    std::unique_ptr<Track[]> tracks_;
    std::size_t n_machines_;
    std::vector<Sums> sums_;
    std::atomic<std::size_t> n_left_{0};  // number of models that have not finished the window
};

}  // namespace steelyard
