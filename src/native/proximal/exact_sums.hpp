// The state of the proximal learners in whole numbers: class-wise sums of products that add, subtract and merge
// without any rounding, in any order.
//
// Every feature has a quantum 2^k. A value is learned as the nearest whole number of quanta (halves upwards), and from
// there on everything is exact. Quanta are settled by the first rows, or given. A feature none of whose values has been
// rounded so far (counts, flags, categories) "does not round": it gets finer quanta when a value needs them, which
// changes none of the numbers learned before. A feature that rounds keeps its quantum for good, so that a row is
// always forgotten as the very numbers as which it was learned.
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

constexpr std::size_t kSettlingRows = 256;
constexpr int kFractions = 20;             // weights that are not whole are taken in steps of 2^-20
constexpr double kLargestWeight = 0x1p40;  // of one row
constexpr double kLargestValue = 1e300;    // of a feature: twice as far, and differences stay among the doubles

struct ExactGrid {
    std::vector<std::int32_t> exponent;  // quanta are 2^exponent
    std::vector<double> origin;          // in quanta, whole; numbers are kept relative to it
    std::vector<std::uint8_t> rounds;    // whether values have been rounded: the quantum is then final
    std::vector<std::uint8_t> mixed;     // by how many bits coarser quanta were to which merged values had been rounded
};

// What is kept of one class: sums of products, and rows that are not in them yet.
struct ExactBlock {
    std::shared_ptr<const Triangle> sums;  // null while all rows wait
    std::vector<double> rows;              // waiting, in quanta relative to the origin
    std::vector<std::int64_t> weights;     // of the waiting rows, in steps; negative for rows to be forgotten
    // Of a class whose rows all wait: the sums of the first n_seen of them, for whoever asks again after a row more.
    std::shared_ptr<const Triangle> seen;
    std::size_t n_seen = 0;

    // The sums of all rows, where somewhere they are ready.
    const Triangle* ready() const {
        if (weights.empty()) return sums.get();
        return !sums && seen && n_seen == weights.size() ? seen.get() : nullptr;
    }
};

// Rows that have come before there was a grid, as they came.
struct EarlyRows {
    std::vector<double> rows;
    std::vector<std::int64_t> weights;
    std::vector<std::int32_t> slots;
    bool sparse = false;  // whether some of them came sparse: zero is then everyone's origin
};

struct ExactState {
    std::size_t n_features = 0;
    bool is_settled = false;
    ExactGrid grid;
    int weight_exponent = 0;                         // weights are counted in 2^weight_exponent
    std::vector<std::shared_ptr<ExactBlock>> slots;  // by class; null where there are no rows
    EarlyRows early;
};

// Values that are not finite, or weights beyond kLargestWeight: nothing has changed.
struct BadValues : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// Why rows cannot be taken out.
enum class Refusal { none, too_many, never_learned };
struct Removal {
    Refusal refusal = Refusal::none;
    std::int32_t slot = -1;
    double wanted = 0.0, present = 0.0;
};

// Rows of one call: slots by row, weights empty where all are 1.
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

// All functions leave the state as it was when they throw.
template <class T>
void add_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads);
template <class T>
Removal remove_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads);
template <class Index>
void add_rows(ExactState& state, const SparseBatch<Index>& batch);
template <class Index>
Removal remove_rows(ExactState& state, const SparseBatch<Index>& batch);

// Adds sign times what the other holds; places[s] is where its slot s belongs here. If checked, what is taken out must
// be here.
Removal merge(ExactState& state, const ExactState& other, std::span<const std::int32_t> places, int sign, bool checked,
              unsigned n_threads);
// The same rows in other slots, several of which may become one; places[s] < 0 leaves slot s out.
ExactState regrouped(const ExactState& state, std::span<const std::int32_t> places, std::size_t n_slots,
                     unsigned n_threads);
// Feature j is what feature from[j] was; zero in all rows where from[j] is negative.
ExactState rearranged(const ExactState& state, std::span<const std::int64_t> from);
void fade(ExactState& state, double factor, unsigned n_threads);
// Fixes the grid by the rows that are there, or as given.
void settle(ExactState& state, unsigned n_threads);
void settle(ExactState& state, const ExactGrid& grid);
// Brings all waiting rows into the sums, so that none is left as it came; settles the grid if need be.
void fold_all(ExactState& state, unsigned n_threads);
// The sum of the weights of a slot, in steps.
Big count_of(const ExactState& state, std::size_t slot);
bool has_rows(const ExactState& state, std::size_t slot);

// Makes the sums of some slots ready, so that they need not be formed again at every look: no number changes. Where few
// rows have come since the last time, it costs no more than these.
void make_ready(ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads);
// Sums of products of one slot, or of several together, waiting rows included. The state is settled, and stays as long
// as the sums are read.
TriangleSum folded(const ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads);

// Classes in view: the slots of each, one or several.
using SlotGroups = std::vector<std::vector<std::int32_t>>;
SlotGroups single_slots(std::span<const std::int32_t> slots);  // each slot is a class

// Some classes seen from one point near the mean of all their rows, in doubles, each rounded once. Everything here is a
// function of the sums themselves: it depends neither on the grid's origin, nor on how fine its quanta are, nor on how
// it all came together. Coordinates are z = (x - origin) / unit; units are 1 but for features of extreme size.
class ExactView {
  public:
    ExactView(ExactState state, SlotGroups classes, unsigned n_threads);
    ExactView(ExactState state, std::span<const std::int32_t> slots, unsigned n_threads)
        : ExactView(std::move(state), single_slots(slots), n_threads) {}

    const std::vector<double>& origin() const { return origin_; }
    const std::vector<std::int32_t>& units() const { return units_; }  // exponents of 2
    const std::vector<double>& variance() const { return variance_; }  // of z; exactly 0 where a feature is constant
    std::size_t n_classes() const { return classes_.size(); }
    double count(std::size_t k) const;
    void sums(std::size_t k, double* out) const;    // of z
    void matrix(std::size_t k, double* out) const;  // lower triangle of the sum of e e', e = [z, -1]
    // Whether the matrix of one class, its diagonal taken for 1, has no direction in which squares are negative by more
    // than `slack`. Features into which values of coarser quanta were merged are left out: what they leave proves
    // nothing.
    bool is_semidefinite(std::size_t k, double slack) const;
    void total(double* out) const;
    // Few rows F, one after the other, with F' F = the matrix of one class: columns of it that are chosen one by one,
    // each the largest left in units of `scale` (d + 1 numbers). It looks at these columns alone, so a class with few
    // rows costs little; and it is a function of the matrix, not of the rows.
    std::vector<double> factor(std::size_t k, std::span<const double> scale) const;
    // Count, sums and products of one class without any rounding, as bytes: equal numbers give equal bytes.
    std::vector<std::uint8_t> canonical(std::size_t k) const;

  private:
    void look_at(std::size_t feature, const Big& n);
    template <class Whole>
    void look_at(std::size_t feature, const Whole& n, const Whole& sum, const Whole& squares);
    Triangle centered(Triangle triangle) const;
    void write(const Triangle& triangle, double* out) const;
    // Sums of a class whose numbers fit registers all the way, as they are kept and seen from the origin.
    struct Moved {
        std::vector<int128> before, after;
        int128 n = 0;
        double bits = 0.0;  // of a bound on whatever is formed of these and of the sums of products
    };
    std::optional<Moved> moved(const int128* last, double bits) const;
    std::optional<Moved> moved(const TriangleSum& triangle) const;
    std::optional<Moved> moved(const ExactBlock& block) const;
    template <class Form>
    void write_moved(const TriangleSum& triangle, const Moved& sums, double* out) const;
    class Columns;
    void write_centered(const TriangleSum& triangle, double* out) const;
    // The block of a class of one slot, which may be none; null where there are several.
    const std::shared_ptr<ExactBlock>* block_of(std::size_t k) const;
    void set_registers();
    int exponent(std::size_t coordinate) const;

    ExactState state_;
    SlotGroups classes_;
    unsigned n_threads_;
    TriangleSum total_;
    std::vector<double> origin_, variance_;
    std::vector<std::int32_t> units_;
    std::vector<unsigned> finer_;  // by how many bits each quantum is made finer, so that the origin is whole
    std::vector<Big> pivot_;       // the origin, in these, relative to the grid's
    // The same for numbers that fit registers; empty where some do not.
    std::vector<std::int64_t> narrow_pivot_;
    std::vector<double> scale_;  // 2^exponent(j)
    unsigned most_finer_ = 0, pivot_bits_ = 0;
};

}  // namespace steelyard
