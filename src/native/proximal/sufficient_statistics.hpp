// Sufficient statistics of the proximal SVM: class-wise Gram matrices in exact integer arithmetic (fixed point).
// Statistics are added, subtracted and merged without rounding, in any order.
//
// Every feature has a step 2^k. Values are rounded to the nearest integer multiple of the step (ties up).
// All arithmetic after rounding is exact. The steps are parameters, or are fitted to the first rows.
// While all values of a feature are multiples of its step (counts, flags, categories), nothing is rounded.
// If a new value of such a feature is no multiple, the step becomes finer, which does not change earlier values.
// After the first rounded value the step never changes, so forgetting a row subtracts the integers that were added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "common/rows.hpp"
#include "common/wide.hpp"
#include "proximal/limb_triangle.hpp"

namespace steelyard {

constexpr std::size_t kQuantizerRows = 256;
constexpr int kWeightFractionBits = 20;    // weights that are not integers are rounded to multiples of 2^-20
constexpr double kLargestWeight = 0x1p40;  // largest weight of a row
// Largest value of a feature. The difference of two such values is still a finite double.
constexpr double kLargestValue = 1e300;

struct Quantizer {
    std::vector<std::int32_t> exponent;  // exponent of the step 2^exponent[j] of each feature j
    std::vector<double> origin;  // integer number of steps that is subtracted from quantized values of each feature
    std::vector<std::uint8_t> rounds;  // whether values of the feature have been rounded; if so, its step is final
    std::vector<std::uint8_t> mixed;   // number of bits by which steps of merged values were coarser
};

// Statistics of one class: sums of products, and pending rows that the sums do not yet include.
struct ExactBlock {
    std::shared_ptr<const Triangle> sums;  // null while all rows are pending
    std::vector<double> rows;              // pending rows, in steps relative to the origin
    std::vector<std::int64_t> weights;     // weights of the pending rows, in weight steps; negative for rows to forget
    // Cached sums of the first n_partial pending rows, used only while all rows of the class are pending.
    // When the sums are read again, the pending rows that came later are added.
    std::shared_ptr<const Triangle> partial_sums;
    std::size_t n_partial = 0;

    // Returns the sums of all rows if they have been computed, otherwise null.
    const Triangle* formed() const {
        if (weights.empty()) return sums.get();
        return !sums && partial_sums && n_partial == weights.size() ? partial_sums.get() : nullptr;
    }
};

// Rows learned before the quantizer was fixed, stored as raw values.
struct EarlyRows {
    std::vector<double> rows;
    std::vector<std::int64_t> weights;
    std::vector<std::int32_t> slots;
    bool sparse = false;  // whether some of the rows were sparse; if so, all origins are zero
};

struct ExactState {
    std::size_t n_features = 0;
    bool is_frozen = false;
    Quantizer quantizer;
    int weight_exponent = 0;                         // weights are multiples of 2^weight_exponent
    std::vector<std::shared_ptr<ExactBlock>> slots;  // one block per class; null for a class without rows
    EarlyRows early;
};

// Error: values are not finite or too large, or weights exceed kLargestWeight. The state is unchanged.
struct BadValues : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// Reason why rows cannot be removed.
enum class Refusal { none, too_many, never_learned };
struct Removal {
    Refusal refusal = Refusal::none;
    std::int32_t slot = -1;
    double wanted = 0.0, present = 0.0;
};

// Rows of one call with the slot of each row. `weights` is empty if all weights are 1.
template <class T>
struct ExactBatch {
    Rows<T> rows;
    std::span<const std::int32_t> slots;
    std::span<const double> weights;
};

template <class Index>
struct SparseBatch {
    std::span<const double> values;
    std::span<const Index> columns, row_starts;
    std::span<const std::int32_t> slots;
    std::span<const double> weights;
};

// The following functions are atomic: the state is unchanged if they throw.
template <class T>
void add_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads);
template <class T>
Removal remove_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads);
template <class Index>
void add_rows(ExactState& state, const SparseBatch<Index>& batch);
template <class Index>
Removal remove_rows(ExactState& state, const SparseBatch<Index>& batch);

// Adds (sign 1) or subtracts (sign -1) the rows of another state.
// Slot s of the other state corresponds to slot places[s] of this state.
// If `checked` is true, all rows to subtract must be present.
Removal merge(ExactState& state, const ExactState& other, std::span<const std::int32_t> places, int sign, bool checked,
              unsigned n_threads);
// Returns the state with slot s renumbered to places[s].
// Slots with the same new number are merged. Slots with a negative new number are dropped.
ExactState regrouped(const ExactState& state, std::span<const std::int32_t> places, std::size_t n_slots,
                     unsigned n_threads);
// Returns a state whose feature j is feature from[j] of `state`, or constant zero if from[j] is negative.
ExactState permute_features(const ExactState& state, std::span<const std::int64_t> from);
void decay(ExactState& state, double factor, unsigned n_threads);
// Fits the quantizer to the current rows, or sets it. Later rows do not change the quantizer.
void freeze_quantizer(ExactState& state, unsigned n_threads);
void freeze_quantizer(ExactState& state, const Quantizer& quantizer);
// Adds all pending rows to the sums, so that no single row stays stored. Fixes the quantizer if needed.
void fold_all(ExactState& state, unsigned n_threads);
// Returns the sum of the weights of a slot, in weight steps.
Big count_of(const ExactState& state, std::size_t slot);
bool has_rows(const ExactState& state, std::size_t slot);

// Computes and caches the sums of the given slots. The represented rows do not change.
// The cost is proportional to the number of rows that were learned since the last call.
void form_sums(ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads);
// Returns the sums of products of one slot, or the total of several slots, including pending rows.
// The quantizer must be fixed, and the state must outlive the result.
TriangleSum folded(const ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads);

// Classes of a view: each class consists of one or several slots.
using SlotGroups = std::vector<std::vector<std::int32_t>>;
SlotGroups single_slots(std::span<const std::int32_t> slots);  // one class for each slot

// View of some classes as correctly rounded doubles, relative to an origin near the mean of all their rows.
// All values of a view are functions of the exact sums.
// The values of a view therefore do not depend on the quantizer or on the order of updates.
// Coordinates are z = (x - origin) / unit. Units are 1 except for features of extreme size.
class ExactView {
  public:
    ExactView(ExactState state, SlotGroups classes, unsigned n_threads);
    ExactView(ExactState state, std::span<const std::int32_t> slots, unsigned n_threads)
        : ExactView(std::move(state), single_slots(slots), n_threads) {}

    const std::vector<double>& origin() const { return origin_; }
    const std::vector<std::int32_t>& units() const { return units_; }  // exponents of the units, which are powers of 2
    // Returns the variance of z, which is exactly 0 for a constant feature.
    const std::vector<double>& variance() const { return variance_; }
    std::size_t n_classes() const { return classes_.size(); }
    double count(std::size_t k) const;
    void sums(std::size_t k, double* out) const;    // writes the sums of z
    void matrix(std::size_t k, double* out) const;  // writes the lower triangle of the sum of e e', where e = [z, -1]
    // Returns whether no eigenvalue of the correlation matrix of one class is below -slack.
    // Features into which values with coarser steps were merged are ignored: rounding can make their sums inconsistent.
    bool is_semidefinite(std::size_t k, double slack) const;
    void total(double* out) const;
    // Pivoted Cholesky decomposition: returns the few rows of a matrix F such that F'F is the matrix of one class.
    // Each pivot is the largest remaining diagonal entry in units of `scale` (d + 1 numbers).
    // Only the pivot columns are computed, so the decomposition is cheap for a class with few rows.
    // The decomposition depends on the matrix, not on the order of the rows.
    std::vector<double> factor(std::size_t k, std::span<const double> scale) const;
    // Returns the exact count, sums and products of one class as bytes. Equal numbers have equal bytes.
    std::vector<std::uint8_t> canonical(std::size_t k) const;

  private:
    void choose_origin(std::size_t feature, const Big& n);
    template <class Whole>
    void choose_origin(std::size_t feature, const Whole& n, const Whole& sum, const Whole& squares);
    Triangle centered(Triangle triangle) const;
    void write(const Triangle& triangle, double* out) const;
    // Sums of one class, used if all intermediate values of the translation to the origin fit in registers.
    struct Moved {
        std::vector<int128> before, after;
        int128 n = 0;
        double bits = 0.0;  // log2 of a bound on all intermediate values
    };
    std::optional<Moved> moved(const int128* last, double bits) const;
    std::optional<Moved> moved(const TriangleSum& triangle) const;
    std::optional<Moved> moved(const ExactBlock& block) const;
    template <class Form>
    void write_moved(const TriangleSum& triangle, const Moved& sums, double* out) const;
    class Columns;
    void write_centered(const TriangleSum& triangle, double* out) const;
    // Returns the block (or null) of a class with one slot, or a null pointer for a class with several slots.
    const std::shared_ptr<ExactBlock>* block_of(std::size_t k) const;
    void set_registers();
    int exponent(std::size_t coordinate) const;

    ExactState state_;
    SlotGroups classes_;
    unsigned n_threads_;
    TriangleSum total_;
    std::vector<double> origin_, variance_;
    std::vector<std::int32_t> units_;
    std::vector<unsigned> finer_;  // number of bits by which each step is refined, so that the origin is an integer
    std::vector<Big> pivot_;       // the origin in refined steps, relative to the origin of the quantizer
    // Origin and scales if all values fit in registers, otherwise empty.
    std::vector<std::int64_t> narrow_pivot_;
    std::vector<double> scale_;  // 2^exponent(j)
    unsigned max_finer_ = 0, pivot_bits_ = 0;
};

}  // namespace steelyard
