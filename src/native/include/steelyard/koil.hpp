// Kernelized online imbalanced learning (KOIL): two budgets of support vectors, and for every sample a step that
// sets it apart from the nearest opposite support vectors that are ranked wrongly.
//
// KoilMachine is the algorithm for two classes and one kernel, on kernel values alone. KoilEnsemble feeds several
// machines from one stream (one for each class against the rest, one for each kernel) and evaluates what they share
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "steelyard/kernels.hpp"
#include "steelyard/rows.hpp"

namespace steelyard {

// What happens to a new support vector when its buffer is full. The "plus" kinds give the weight of whichever
// vector goes to the most similar one that stays.
enum class BufferPolicy { reservoir_plus, fifo_plus, reservoir, fifo, unbounded };

struct KoilRule {
    double C;
    double learning_rate;     // 0 < learning_rate < 1
    std::size_t n_neighbors;  // at least 1
    bool smooth;              // squared instead of plain pairwise hinge loss
    bool decay;               // weights shrink by 1 - learning_rate at each sample
    BufferPolicy policy;
};

class KoilMachine;

// What a machine asks of whoever holds the vectors.
class KernelAccess {
  public:
    // k(x, x) of the sample at hand.
    virtual double self_similarity(const KoilMachine& machine) const = 0;
    // Kernel values of the vector in a slot with the vectors in all slots.
    virtual void slot_row(const KoilMachine& machine, std::size_t slot, double* row) const = 0;

  protected:
    ~KernelAccess() = default;
};

// All that a machine has learned. Sides: 0 holds the negative, 1 the positive support vectors.
struct KoilMachineState {
    struct Side {
        std::vector<std::uint32_t> ids;    // which vector stands in each slot
        std::vector<double> coef, scores;  // both in units of `scale`
        std::size_t oldest = 0;            // the slot that a full first-in-first-out buffer gives up next
        std::uint64_t seen = 0;            // samples of this class, stored or not
    };
    Side sides[2];
    double scale = 1.0;       // what every weight has decayed to since the last refresh
    double log_weight = 0.0;  // of this kernel among several
    std::uint32_t steps = 0;  // since the last refresh
};

class KoilMachine {
  public:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    struct Outcome {
        double loss = 0.0;              // C times the sum of the (squared) losses that were acted on
        std::uint32_t slot = kNone;     // where the sample was stored
        std::uint32_t gone_id = kNone;  // the vector that had to leave
    };

    KoilMachine(const KernelSpec& kernel, std::size_t budget);
    KoilMachine(const KernelSpec& kernel, std::size_t budget, const KoilMachineState& state);
    KoilMachineState state() const;

    const KernelSpec& kernel() const { return kernel_; }
    std::size_t count(int side) const { return sides_[side].count; }
    std::size_t slot(int side, std::size_t i) const { return static_cast<std::size_t>(side) * capacity_ + i; }
    std::uint32_t* ids(int side) { return ids_.data() + slot(side, 0); }
    const std::uint32_t* ids(int side) const { return ids_.data() + slot(side, 0); }
    std::uint32_t& id(std::size_t slot) { return ids_[slot]; }
    std::uint32_t id(std::size_t slot) const { return ids_[slot]; }
    // Slots a row of kernel values has room for, those not in use included.
    std::size_t n_slots() const { return 2 * capacity_; }
    const double* coef(int side) const { return coef_.data() + slot(side, 0); }
    double scale() const { return scale_; }
    double log_weight = 0.0;

    // Makes room for one more vector on this side; before the similarities of a sample are put in.
    void reserve(int side);
    // Kernel values of the sample with the vectors in the slots, to be filled in before learn().
    double* similarities(int side) { return similarities_.data() + slot(side, 0); }
    // Sum of weight times similarity.
    double score() const;
    // One sample of class y = +1 or -1, with a random number in [0, 1).
    Outcome learn(int y, const KoilRule& rule, double uniform, const KernelAccess& access);
    // To be called when learn() is through and the sample's id is set.
    bool needs_refresh() const;
    void refresh(const KernelAccess& access);
    // To be called once on a machine made from a state.
    void fill_matrix(const KernelAccess& access);
    // Largest difference between a cached score and a fresh one; for tests.
    double cache_error(const KernelAccess& access) const;

  private:
    struct Side {
        std::size_t count = 0, oldest = 0;
        std::uint64_t seen = 0;
    };
    // Changes of the decision function: factor times the kernel row of one vector.
    struct Changes {
        std::vector<const double*> rows;
        std::vector<double> factors;
        std::size_t count = 0;
    };

    bool keeps_matrix() const;
    void grow(std::size_t capacity);
    bool is_full(int side) const { return budget_ != 0 && sides_[side].count == budget_; }
    double dot(const double* row) const;
    double* row(std::size_t slot, const KernelAccess& access);
    void change(const double* row, double factor);
    std::size_t find_violators(int y, std::size_t most);
    double push_apart(int y, std::size_t n_violators, const KoilRule& rule, Outcome& outcome,
                      const KernelAccess& access);
    std::size_t place(int side, const KoilRule& rule, double uniform);
    void add_to_most_similar(int side, const double* similarities, double weight, const KernelAccess& access);
    void store(int side, std::size_t i, double weight, bool keep_weight, Outcome& outcome, const KernelAccess& access);
    void apply_changes();

    KernelSpec kernel_;
    std::size_t budget_, capacity_ = 0, stride_ = 0;  // capacity_: slots of each side
    Side sides_[2];
    double scale_ = 1.0;
    std::uint32_t steps_ = 0;
    AlignedVector<double> coef_, scores_, similarities_, matrix_;
    std::vector<std::uint32_t> ids_;
    // Room for one sample's work.
    AlignedVector<double> losses_, spare_rows_;
    AlignedVector<std::int64_t> keys_;
    std::vector<std::uint32_t> chosen_;
    Changes changes_;
};

// Vectors that several machines hold, each stored once.
template <class T>
class SharedRows {
  public:
    explicit SharedRows(std::size_t n_features) : rows_(n_features) {}
    const PackedRows<T, double>& rows() const { return rows_; }
    std::uint32_t add(const T* row);  // with one holder
    void hold(std::uint32_t id) { ++holders_[id]; }
    void release(std::uint32_t id);

  private:
    PackedRows<T, double> rows_;
    std::vector<std::uint32_t> holders_, free_;
};

// Machines that see the same stream: n_kernels for every target (a class against the rest), target by target.
template <class T>
class KoilEnsemble {
  public:
    // budget 0: no bound.
    KoilEnsemble(std::size_t n_features, std::vector<KernelSpec> kernels, std::size_t budget, std::uint64_t seed);
    // Rebuilds what states() and vectors() describe; ids are rows of `vectors`.
    KoilEnsemble(Rows<T> vectors, std::vector<KernelSpec> kernels, std::size_t budget, std::uint64_t seed,
                 std::uint64_t n_seen, std::span<const KoilMachineState> states);

    std::size_t n_features() const { return shared_.rows().n_features(); }
    std::size_t n_kernels() const { return kernels_.size(); }
    std::size_t n_targets() const { return machines_.size() / kernels_.size(); }
    std::size_t n_machines() const { return machines_.size(); }
    std::uint64_t n_seen() const { return n_seen_; }
    const KoilMachine& machine(std::size_t i) const { return machines_[i]; }

    // A target that has seen nothing, or a copy of another one.
    void add_target();
    void copy_target(std::size_t target);

    // signs[target * X.n_rows + i] is the class of row i to a target, +1 or -1. Values finite.
    void learn(Rows<T> X, const std::int8_t* signs, const KoilRule& rule);
    // out[machine * X.n_rows + i] = f(x_i)
    void scores(Rows<T> X, double* out, unsigned n_threads) const;

    // The vectors in use, one a row, in an order that depends on the machines alone, and the states with ids that
    // are rows of it.
    std::vector<KoilMachineState> states(std::vector<T>& vectors) const;
    double cache_error() const;

  private:
    class Block;
    class Access;

    void learn_sample(Block& block, std::size_t i, std::size_t target, int y, const KoilRule& rule);
    void learn_with(std::size_t machine, Block& block, std::size_t i, int y, const KoilRule& rule);
    void gather(const KoilMachine& machine, int side, const double* values, double* out) const;
    void score_block(Rows<T> X, std::size_t begin, std::size_t n_rows, double* values, double* similarities,
                     double* out) const;
    std::size_t source_of(std::size_t machine) const { return source_of_[machine % kernels_.size()]; }

    std::vector<KernelSpec> kernels_;
    // What is evaluated over the shared rows: the kernel itself if there is one, else the sums that all follow from.
    std::vector<KernelSpec> sources_;
    std::vector<std::size_t> source_of_;  // for each kernel
    std::size_t budget_;
    std::uint64_t seed_, n_seen_ = 0;
    SharedRows<T> shared_;
    std::uint32_t sample_id_ = KoilMachine::kNone;  // the sample at hand, once a machine has stored it
    std::vector<KoilMachine> machines_;
};

}  // namespace steelyard
