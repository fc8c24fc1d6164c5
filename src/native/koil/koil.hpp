// Kernelized online imbalanced learning (KOIL), with one buffer of support vectors per class.
// Each sample triggers a gradient step on the pairwise losses with its nearest support vectors of the other class.
//
// KoilMachine is a binary model with one kernel. It needs only kernel values, not the vectors.
// The two buffers of a model are called sides: side 0 holds the negative support vectors, side 1 the positive ones.
// KoilEnsemble trains several models on one stream: one for each target (one class against the rest) and kernel.
// If it is faster, the models compute their kernel values from shared distances and products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "kernels/kernels.hpp"
#include "koil/koil_matrix.hpp"

namespace steelyard {

// Replacement policy of a full buffer of support vectors.
// The "plus" policies add the weight of a removed vector to the most similar remaining vector.
enum class BufferPolicy { reservoir_plus, fifo_plus, reservoir, fifo, unbounded };

// Maximum number of negative (entry 0) and positive (entry 1) support vectors. 0 means unbounded.
using KoilBudgets = std::array<std::size_t, 2>;

struct KoilRule {
    double C;
    double learning_rate;     // must be between 0 and 1, exclusive
    std::size_t n_neighbors;  // number of neighbours, at least 1
    bool smooth;              // use the squared pairwise hinge loss instead of the hinge loss
    bool decay;               // shrink all weights by the factor 1 - learning_rate at each sample
    BufferPolicy policy;
    double weight_rate;       // rate at which losses reduce the weight of a kernel
    double rate_decay = 0.0;  // the learning rate of the t-th sample of a model is learning_rate / t^rate_decay
    // Equation (3.9): use the violators among the nearest vectors instead of the nearest violators.
    bool nearest_first = false;
    bool store_all = false;  // algorithm 3 as printed in the thesis: also store samples of weight 0
};

// Kernel values of stored vectors, provided by the owner of the vectors.
template <class Real>
class KernelAccess {
  public:
    // Computes the kernel values of vector i of `side` with all vectors of the side `with`.
    virtual void kernel_values(int side, std::size_t i, int with, Real* values) const = 0;

  protected:
    ~KernelAccess() = default;
};

// State of a KoilMachine, as it is saved.
struct KoilMachineState {
    struct Side {
        std::vector<std::uint32_t> ids;    // id of the vector in each slot
        std::vector<double> coef, scores;  // weights and scores of the support vectors, both divided by `scale`
        std::vector<double> applied;       // only for the stale side: weights from which its scores were computed
        std::size_t oldest = 0;            // slot that is replaced next in a full FIFO buffer
        std::uint64_t seen = 0;            // number of samples of this class, including samples that were not stored
    };
    Side sides[2];
    int stale_side = 0;       // side (0 or 1) whose scores were computed from the old weights in `applied`
    double scale = 1.0;       // product of all decay factors since the last refresh
    double log_weight = 0.0;  // log of the weight of this kernel relative to the other kernels of its target
    std::uint32_t steps = 0;  // number of steps since the last refresh
};

// Id that marks an empty slot.
constexpr std::uint32_t kNoVector = UINT32_MAX;

// Binary KOIL model with one kernel: its support vectors, their weights, and their cached scores.
//
// A sample needs only the scores of the support vectors of the opposite class, and makes those of its own class stale.
// Stale scores are updated when a sample of the other class needs them, so several changes of a weight cost one update.
// If the other class is rare, its samples usually need only a few scores, and the remaining scores stay stale.
//
// Real is the type of kernel values, weights and scores.
// On the same samples, a float64 and a float32 model differ only by rounding errors at first.
// Later a rounding error may decide whether a vector violates its margin or which vector is removed.
// From then on, the two models have different support vectors, but predict equally well.
// States store doubles, which represent float32 numbers exactly.
template <class Real>
class KoilMachine {
  public:
    // One sample of class y = +1 or -1 with a random number in [0, 1).
    struct Sample {
        int y;
        double uniform;
        Real* similarities;  // kernel values of the sample with the support vector in each slot
        Real self_similarity;
        int side() const { return y > 0; }
    };
    struct Outcome {
        double loss = 0.0;                   // sum of the pairwise losses (squared if smooth) of all updated pairs
        std::uint32_t position = kNoVector;  // index in the buffer of its class at which the sample was stored
        bool evicted = false;                // whether the sample replaced another vector
    };

    KoilMachine(const KernelSpec& kernel, const KoilBudgets& budgets);
    KoilMachine(const KernelSpec& kernel, const KoilBudgets& budgets, const KoilMachineState& state);
    KoilMachineState state() const;

    const KernelSpec& kernel() const { return kernel_; }
    std::size_t count(int side) const { return sides_[side].count; }
    std::size_t slot(int side, std::size_t i) const { return static_cast<std::size_t>(side) * capacity_ + i; }
    std::uint32_t* ids(int side) { return ids_.data() + slot(side, 0); }
    const std::uint32_t* ids(int side) const { return ids_.data() + slot(side, 0); }
    // Returns the length of a row of kernel values, including unused slots.
    std::size_t n_slots() const { return 2 * capacity_; }
    const Real* coef(int side) const { return coef_.data() + slot(side, 0); }
    double scale() const { return scale_; }
    double log_weight = 0.0;

    // Allocates space for one more vector of `side`. Slot numbers change if the capacity grows.
    void reserve(int side);
    // Learns one sample. `outcome` must be default-initialized.
    // `outcome` is an output argument, because copying a returned value would stall on preceding stores.
    // Denormal numbers must be flushed to zero during the call, see denormals.hpp.
    void learn(const Sample& sample, const KoilRule& rule, const KernelAccess<Real>& access, Outcome& outcome);
    // Returns whether refresh() is due. Call this function after learn(), when the sample has been stored.
    bool needs_refresh() const;
    void refresh(const KernelAccess<Real>& access);
    // Computes the kernel matrix. Must be called once after a model is constructed from a state.
    void fill_matrix(const KernelAccess<Real>& access);
    // Returns the largest difference between a cached and a recomputed score, for tests.
    double cache_error(const KernelAccess<Real>& access) const;

  private:
    struct Side {
        std::size_t count = 0;
        // `seen` is placed between `count` and `oldest`, which are read together, to avoid a store-forwarding stall.
        std::uint64_t seen = 0;
        std::size_t oldest = 0;
    };
    // Pending additions to scores: kernel rows and their factors.
    struct Changes {
        std::vector<const Real*> rows;
        std::vector<Real> factors;
        std::size_t count = 0;
    };

    // Scores of a sample divided by scale_: with the current weights and with the weights in applied_.
    struct Scores {
        Real current, applied;
    };
    // Support vector that is being removed from a buffer.
    struct Removed {
        Real applied;      // weight of the vector that is included in stale scores
        bool compensates;  // whether the weight of the removed vector is added to the most similar remaining vector
    };

    void grow(std::size_t capacity);
    typename KoilMatrix<Real>::Counts counts() const { return {sides_[0].count, sides_[1].count}; }
    bool is_full(int side) const { return budgets_[side] != 0 && sides_[side].count == budgets_[side]; }
    Real dot(const Real* weights, const Real* row) const;
    Real fresh_score(std::size_t at, const KernelAccess<Real>& access);
    Real* row(std::size_t at, int with, const KernelAccess<Real>& access, std::size_t spare = 0);
    void change(const Real* row, Real factor);
    void apply_changes(int side);
    void mark_changed();
    void set_weight(std::size_t at, Real weight);
    void add_weight(std::size_t at, Real weight, const KernelAccess<Real>& access);
    void catch_up(const KernelAccess<Real>& access);
    double learning_rate(const KoilRule& rule) const;
    Scores scores_of(const Sample& sample, bool may_be_stored) const;
    void prepare_opposite_scores(const Sample& sample, const KoilRule& rule, const KernelAccess<Real>& access);
    bool nearest_all_violate(const Sample& sample, std::size_t max_count);
    void find_violators(const Sample& sample, Real unscaled_score, const KoilRule& rule);
    Real update_violators(const Sample& sample, const KoilRule& rule, double rate, Outcome& outcome,
                          const KernelAccess<Real>& access);
    std::size_t choose_position(const Sample& sample, const KoilRule& rule) const;
    void store(const Sample& sample, std::size_t i, Real weight, Real applied_score, const Removed& removed,
               Outcome& outcome, const KernelAccess<Real>& access);
    Real remove(const Sample& sample, std::size_t at, const Removed& removed, const KernelAccess<Real>& access);

    KernelSpec kernel_;
    KoilBudgets budgets_;
    std::size_t capacity_ = 0;  // number of slots of each class
    Side sides_[2];
    double scale_ = 1.0;
    std::uint32_t steps_ = 0;
    AlignedVector<Real> coef_, scores_;
    KoilMatrix<Real> matrix_;
    std::vector<std::uint32_t> ids_;
    int stale_side_ = 0;
    AlignedVector<Real> applied_;
    std::vector<std::uint64_t> changed_;  // bitmap of the slots in which coef_ and applied_ differ
    // Scratch memory for one sample.
    AlignedVector<Real> losses_, spare_rows_;
    AlignedVector<typename KeyOf<Real>::Type> keys_;
    std::vector<std::uint32_t> chosen_;
    std::size_t n_chosen_ = 0;
    Changes changes_;
};

// Reference-counted support vectors that several models share.
template <class T>
class SharedRows {
  public:
    explicit SharedRows(std::size_t n_features) : rows_(n_features) {}
    const PackedRows<T>& rows() const { return rows_; }
    std::uint32_t add(const T* row);  // adds a vector with reference count one
    void hold(std::uint32_t id) { ++holders_[id]; }
    void release(std::uint32_t id);

  private:
    PackedRows<T> rows_;
    std::vector<std::uint32_t> holders_, free_;
};

// Models that learn one stream. Every target (one class against the rest) has one model per kernel.
template <class T>
class KoilEnsemble {
  public:
    KoilEnsemble(std::size_t n_features, std::vector<KernelSpec> kernels, KoilBudgets budgets, std::uint64_t seed);
    // Restores an ensemble from the results of states() and vectors(). Ids are row numbers of `vectors`.
    KoilEnsemble(Rows<T> vectors, std::vector<KernelSpec> kernels, KoilBudgets budgets, std::uint64_t seed,
                 std::uint64_t n_seen, std::span<const KoilMachineState> states);

    std::size_t n_features() const { return shared_.rows().n_features(); }
    std::size_t n_kernels() const { return kernels_.size(); }
    std::size_t n_targets() const { return members_.size() / kernels_.size(); }
    std::size_t n_machines() const { return members_.size(); }
    std::uint64_t n_seen() const { return n_seen_; }

    // Adds a target without training (first function) or as a copy of another target (second function).
    void add_target();
    void copy_target(std::size_t target);

    // signs[target * X.n_rows + i] is +1 if row i belongs to the class of the target, else -1.
    // All values of X must be finite.
    void learn(Rows<T> X, const std::int8_t* signs, const KoilRule& rule, unsigned n_threads);
    // out[machine * X.n_rows + i] = decision value f(x_i) of the model.
    void scores(Rows<T> X, double* out, unsigned n_threads) const;

    // Returns the states of all models and writes the stored vectors to `vectors`.
    // Ids are row numbers of `vectors`. The order of the vectors depends only on the models.
    std::vector<KoilMachineState> states(std::vector<T>& vectors) const;
    double cache_error() const;

  private:
    class Window;

    // A model and its support vectors in slot order.
    struct Member final : KernelAccess<T> {
        Member(const KernelSpec& kernel, const KoilBudgets& budgets, std::size_t n_features)
            : machine(kernel, budgets), rows{PackedRows<T>(n_features), PackedRows<T>(n_features)} {}
        void kernel_values(int side, std::size_t i, int with, T* values) const override;
        void store(int side, std::size_t i, const T* vector);

        KoilMachine<T> machine;
        PackedRows<T> rows[2];
    };
    std::vector<KernelSpec> kernels_;
    KoilBudgets budgets_;
    std::uint64_t seed_, n_seen_ = 0;
    SharedRows<T> shared_;
    std::vector<Member> members_;
};

}  // namespace steelyard
