// Kernelized online imbalanced learning (KOIL): two budgets of support vectors, and for every sample a step that
// sets it apart from the nearest opposite support vectors that are ranked wrongly.
//
// KoilMachine is the algorithm for two classes and one kernel, on kernel values alone. KoilEnsemble feeds several
// machines from one stream (one for each class against the rest, one for each kernel) and evaluates what they share
// once, where that is less work.
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

// What happens to a new support vector when its buffer is full. The "plus" kinds give the weight of whichever
// vector goes to the most similar one that stays.
enum class BufferPolicy { reservoir_plus, fifo_plus, reservoir, fifo, unbounded };

// Most vectors of the negative [0] and of the positive side [1]; 0: no bound.
using KoilBudgets = std::array<std::size_t, 2>;

struct KoilRule {
    double C;
    double learning_rate;     // 0 < learning_rate < 1
    std::size_t n_neighbors;  // at least 1
    bool smooth;              // squared instead of plain pairwise hinge loss
    bool decay;               // weights shrink by 1 - learning_rate at each sample
    BufferPolicy policy;
    double weight_rate;       // of several kernels: how fast the losses of one lower its weight
    double rate_decay = 0.0;  // the t-th sample of a machine has learning_rate / t^rate_decay
};

// What a machine asks of whoever holds the vectors.
template <class Real>
class KernelAccess {
  public:
    // Kernel values of the vector at position i of a side with all vectors of side `with`.
    virtual void kernel_values(int side, std::size_t i, int with, Real* values) const = 0;

  protected:
    ~KernelAccess() = default;
};

// All that a machine has learned. Sides: 0 holds the negative, 1 the positive support vectors.
struct KoilMachineState {
    struct Side {
        std::vector<std::uint32_t> ids;    // which vector stands in each slot
        std::vector<double> coef, scores;  // both in units of `scale`
        std::vector<double> counted;       // weights as they were when the side that is behind was brought up to date
        std::size_t oldest = 0;            // the slot that a full first-in-first-out buffer gives up next
        std::uint64_t seen = 0;            // samples of this class, stored or not
    };
    Side sides[2];
    int behind = 0;           // the side whose scores follow from `counted`
    double scale = 1.0;       // what every weight has decayed to since the last refresh
    double log_weight = 0.0;  // of this kernel among several
    std::uint32_t steps = 0;  // since the last refresh
};

// No vector.
constexpr std::uint32_t kNoVector = UINT32_MAX;

// A sample needs the scores of the opposite side alone. Those of its own side fall behind and are brought up to date
// when a sample of the other class asks for them: what many samples have done to a weight is then one change. Where
// that class is rare, it mostly asks for the scores of a few neighbours only, and the side stays behind.
//
// Real is the type of kernel values, weights and scores. A float64 machine and a float32 one that see the same samples
// differ by rounding, until a rounding decides whether a vector violates or which one leaves: from there on they are
// two machines that are as good as each other. A state holds doubles, which a float32 machine's numbers all are.
template <class Real>
class KoilMachine {
  public:
    // A sample of class y = +1 or -1 with a random number in [0, 1).
    struct Sample {
        int y;
        double uniform;
        Real* similarities;  // with the vectors in the slots; room for all slots
        Real self_similarity;
        int side() const { return y > 0; }
    };
    struct Outcome {
        double loss = 0.0;                // C times the sum of the (squared) losses that were acted on
        std::uint32_t place = kNoVector;  // position on its side at which the sample was stored
        bool evicted = false;             // another vector stood there
    };

    KoilMachine(const KernelSpec& kernel, const KoilBudgets& budgets);
    KoilMachine(const KernelSpec& kernel, const KoilBudgets& budgets, const KoilMachineState& state);
    KoilMachineState state() const;

    const KernelSpec& kernel() const { return kernel_; }
    std::size_t count(int side) const { return sides_[side].count; }
    std::size_t slot(int side, std::size_t i) const { return static_cast<std::size_t>(side) * capacity_ + i; }
    std::uint32_t* ids(int side) { return ids_.data() + slot(side, 0); }
    const std::uint32_t* ids(int side) const { return ids_.data() + slot(side, 0); }
    // Slots a row of kernel values has room for, those not in use included.
    std::size_t n_slots() const { return 2 * capacity_; }
    const Real* coef(int side) const { return coef_.data() + slot(side, 0); }
    double scale() const { return scale_; }
    double log_weight = 0.0;

    // Makes room for one more vector on this side; slots move when their number grows.
    void reserve(int side);
    // `outcome` is as new. (Returned, it would be copied, and the copy wait for all that was written before.) To be
    // called with denormal numbers as zero: see denormals.hpp.
    void learn(const Sample& sample, const KoilRule& rule, const KernelAccess<Real>& access, Outcome& outcome);
    // To be called when learn() is through and the sample stands among the vectors.
    bool needs_refresh() const;
    void refresh(const KernelAccess<Real>& access);
    // To be called once on a machine made from a state.
    void fill_matrix(const KernelAccess<Real>& access);
    // Largest difference between a cached score and a fresh one; for tests.
    double cache_error(const KernelAccess<Real>& access) const;

  private:
    struct Side {
        std::size_t count = 0;
        std::uint64_t seen = 0;  // stands between: counts that are read with what was just written would wait for it
        std::size_t oldest = 0;
    };
    // What to add to scores: factors times kernel rows.
    struct Changes {
        std::vector<const Real*> rows;
        std::vector<Real> factors;
        std::size_t count = 0;
    };

    // Of a sample, unscaled: by all weights, and by those that are counted.
    struct Scores {
        Real current, counted;
    };
    // A vector that leaves.
    struct Gone {
        Real counted;   // its weight as it was counted
        bool has_heir;  // its weight stays
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
    void ask_other_side(const Sample& sample, const KoilRule& rule, const KernelAccess<Real>& access);
    bool find_nearest(const Sample& sample, std::size_t most);
    void find_violators(const Sample& sample, Real unscaled_score, std::size_t most);
    Real push_apart(const Sample& sample, const KoilRule& rule, double rate, Outcome& outcome,
                    const KernelAccess<Real>& access);
    std::size_t place(const Sample& sample, const KoilRule& rule) const;
    void store(const Sample& sample, std::size_t i, Real weight, Real counted_score, const Gone& gone, Outcome& outcome,
               const KernelAccess<Real>& access);
    Real take_out(const Sample& sample, std::size_t at, const Gone& gone, const KernelAccess<Real>& access);

    KernelSpec kernel_;
    KoilBudgets budgets_;
    std::size_t capacity_ = 0;  // capacity_: slots of each side
    Side sides_[2];
    double scale_ = 1.0;
    std::uint32_t steps_ = 0;
    AlignedVector<Real> coef_, scores_;
    KoilMatrix<Real> matrix_;
    std::vector<std::uint32_t> ids_;
    int behind_ = 0;
    AlignedVector<Real> counted_;
    std::vector<std::uint64_t> changed_;  // a bit for each slot whose weight is not the one that is counted
    // Room for one sample's work.
    AlignedVector<Real> losses_, spare_rows_;
    AlignedVector<typename KeyOf<Real>::Type> keys_;
    std::vector<std::uint32_t> chosen_;
    std::size_t n_chosen_ = 0;
    Changes changes_;
};

// Vectors that several machines hold, each stored once.
template <class T>
class SharedRows {
  public:
    explicit SharedRows(std::size_t n_features) : rows_(n_features) {}
    const PackedRows<T>& rows() const { return rows_; }
    std::uint32_t add(const T* row);  // with one holder
    void hold(std::uint32_t id) { ++holders_[id]; }
    void release(std::uint32_t id);

  private:
    PackedRows<T> rows_;
    std::vector<std::uint32_t> holders_, free_;
};

// Machines that see the same stream: n_kernels for every target (a class against the rest), target by target.
template <class T>
class KoilEnsemble {
  public:
    KoilEnsemble(std::size_t n_features, std::vector<KernelSpec> kernels, KoilBudgets budgets, std::uint64_t seed);
    // Rebuilds what states() and vectors() describe; ids are rows of `vectors`.
    KoilEnsemble(Rows<T> vectors, std::vector<KernelSpec> kernels, KoilBudgets budgets, std::uint64_t seed,
                 std::uint64_t n_seen, std::span<const KoilMachineState> states);

    std::size_t n_features() const { return shared_.rows().n_features(); }
    std::size_t n_kernels() const { return kernels_.size(); }
    std::size_t n_targets() const { return members_.size() / kernels_.size(); }
    std::size_t n_machines() const { return members_.size(); }
    std::uint64_t n_seen() const { return n_seen_; }

    // A target that has seen nothing, or a copy of another one.
    void add_target();
    void copy_target(std::size_t target);

    // signs[target * X.n_rows + i] is the class of row i to a target, +1 or -1. Values finite.
    void learn(Rows<T> X, const std::int8_t* signs, const KoilRule& rule, unsigned n_threads);
    // out[machine * X.n_rows + i] = f(x_i)
    void scores(Rows<T> X, double* out, unsigned n_threads) const;

    // The vectors in use, one a row, in an order that depends on the machines alone, and the states with ids that
    // are rows of it.
    std::vector<KoilMachineState> states(std::vector<T>& vectors) const;
    double cache_error() const;

  private:
    class Window;

    // A machine and its vectors, in the order of its slots.
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
