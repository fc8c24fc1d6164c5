// IncrementalSvc: an exact SVM that learns and forgets rows.
// An IncrementalSvc holds the rows, the labels and one binary problem for each class (one against the rest).
// All problems share the samples and the cached kernel rows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel_rows.hpp"
#include "svm/row_index.hpp"
#include "svm/svm_problem.hpp"

namespace steelyard {

// Rows to add or to forget. Two rows are equal if their values, class codes and weights are equal.
struct LabelledRows {
    const double* X;
    std::span<const std::int32_t> codes;
    std::span<const double> weights;  // weights of the rows, all positive
};

// One binary problem: the class `positive` against the rest. Row i has the bound class_bounds[code_i] * weight_i.
struct ProblemSpec {
    std::int32_t positive;
    std::vector<double> class_bounds;
};

// Error: row `index` of the rows to forget was never learned, or was learned fewer times than it is to be forgotten.
struct UnknownRow {
    std::size_t index;
};

// State that the rows alone do not determine: the precision and the list of the cached kernel rows.
// RowsInUse also stores the order in which equal rows are forgotten.
struct RowsInUse {
    Precision precision;
    std::span<const std::uint32_t> kept, order;
    std::size_t n_wanted;
};

class IncrementalSvc {
  public:
    IncrementalSvc(std::size_t n_features, KernelSpec spec, KernelFunction function, std::size_t budget_bytes);

    // Learns and forgets rows, then solves every problem. The update is atomic: if it throws, nothing has changed.
    // update() may throw UnknownRow, SolverFailure, or an exception of the kernel function.
    void update(LabelledRows add, LabelledRows retire, const std::vector<ProblemSpec>& problems, double tolerance);

    // Returns the number of updates so far, from any thread. Results derived from the state are valid for one version.
    std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

    // Learns one row and forgets another, both of weight 1. The set of problems does not change.
    // Returns false, without changes, if a class would appear or disappear or if the row to forget is unknown.
    // slide() also returns false if the tolerance is not reached.
    bool slide(const double* in, std::int32_t in_code, const double* out, std::int32_t out_code, double tolerance);

    // True while a call modifies the state without the GIL. The bindings change this flag only while they hold the GIL.
    bool is_running = false;

    const KernelRows& rows() const { return rows_; }
    // Returns the number of rows of a class.
    std::size_t count(std::int32_t code) const;
    // Returns the rows with a nonzero coefficient in any problem.
    std::vector<std::uint32_t> support() const;
    // Returns the score of a row. Requires a single problem and a native kernel.
    // The support vectors are packed at the first call after an update.
    double score(const double* x);
    const std::vector<std::int32_t>& codes() const { return codes_; }
    const std::vector<double>& weights() const { return weights_; }
    std::size_t n_problems() const { return problems_.size(); }
    const ProblemSpec& spec(std::size_t k) const { return problems_[k]->spec; }
    SvmProblem& problem(std::size_t k) { return problems_[k]->svm; }

    // Restores the rows of a file without solving. The caller then restores each problem from its own state.
    void restore_rows(LabelledRows rows, const RowsInUse& in_use);
    std::size_t n_wanted() const { return n_wanted_; }
    // Returns the row numbers in the order of the index. Of several equal rows, a lookup finds the last one.
    std::vector<std::uint32_t> order() const { return index_.order(static_cast<std::uint32_t>(codes_.size())); }
    void restore_problem(ProblemSpec spec, SvmState state, const std::vector<std::uint32_t>& active);

  private:
    struct Problem {
        ProblemSpec spec;
        SvmProblem svm;
    };
    using Problems = std::vector<std::shared_ptr<Problem>>;
    struct Expansion {  // support vectors and coefficients; used if there is a single problem
        std::uint64_t version;
        PackedRows<double> vectors;
        std::vector<double> coef;
    };

    void append(LabelledRows rows);
    void count_row(std::int32_t code, int change);
    void take_from_index(LabelledRows rows, std::vector<std::uint32_t>& taken);
    bool equals(std::size_t i, const double* x, std::int32_t code, double weight) const;
    Problems choose_problems(const std::vector<ProblemSpec>& specs);
    void prepare(Problem& problem, const ProblemSpec& spec, const std::vector<std::uint32_t>& leaving);
    void roll_back(std::size_t n_before, const std::vector<std::uint32_t>& leaving);
    void remove_row(std::uint32_t i);
    void release_rows();

    KernelRows rows_;
    std::vector<std::int32_t> codes_;
    std::vector<std::size_t> counts_;  // number of rows of each class code
    std::vector<double> weights_;
    std::vector<std::uint64_t> hashes_;
    RowIndex index_;
    Problems problems_;
    std::atomic<std::uint64_t> version_{0};
    std::size_t n_wanted_ = 0;  // number of kernel rows in use at the last release of unused rows
    std::optional<Expansion> expansion_;
};

}  // namespace steelyard
