// SvmProblem: one binary C-SVM that stays optimal while samples are added or removed and while bounds change.
// The algorithm is the incremental SVM of Cauwenberghs and Poggio.
//
// In signed coefficients z_i = y_i alpha_i, the dual problem is the following:
//
//     minimize 1/2 z'Kz - y'z   subject to   sum(z) = 0,   lower_i <= z_i <= upper_i
//
// The bounds are [lower, upper] = [0, C_i] for y = +1 and [-C_i, 0] for y = -1.
// With e_i = (Kz)_i - y_i and the bias b, the decision function is f(x) = k(x)'z + b.
// The coefficients z are optimal under the following conditions:
//
//     e_i + b >= 0 if z_i < upper_i,   e_i + b <= 0 if z_i > lower_i.
//
// The margin set contains samples strictly between their bounds.
// A Cholesky factor of the kernel matrix of the margin set is used to maintain e_i + b = 0.
// Other samples may also be between their bounds if their kernel rows depend linearly on those of the margin set.
// For such dependent samples, e_i + b = 0 follows from the margin set.
//
// The active set contains the samples whose coefficients move. For these samples e is summed in double precision.
// For other samples e has an error bound, because it is summed from kernel rows of lower precision.
// If the error bound allows that a sample violates its condition, its sum is recomputed in double precision.
// The optimality conditions therefore hold as if all kernel rows were doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "enclosing/active_set.hpp"
#include "kernels/kernel_rows.hpp"
#include "svm/margin_motion.hpp"
#include "svm/svm_state.hpp"

namespace steelyard {

// Error: the optimality conditions do not hold within the tolerance. The caller must roll back.
struct SolverFailure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Statistics of the last solve.
struct SolveReport {
    std::size_t steps = 0, rounds = 0, smo_steps = 0;
};

class SvmProblem {
  public:
    SvmProblem(KernelRows& rows, double tolerance) : rows_(rows), tolerance_(tolerance), active_(rows) {}

    const SvmState& state() const { return s_; }
    const std::vector<std::uint32_t>& active() const { return active_.samples(); }
    void restore(SvmState state, const std::vector<std::uint32_t>& active);
    void set_tolerance(double tolerance) { tolerance_ = tolerance; }

    // Adds the samples that were appended to the kernel rows, initially with bound 0.
    void extend(const std::vector<double>& y, const std::vector<double>& bounds);
    // Sets the bound of a sample for the next solve(); 0 removes the sample from the solution.
    void set_bound(std::size_t i, double bound);
    // Removes sample i, which must have bound 0. The last sample is renumbered to i.
    void swap_remove(std::size_t i);
    void pop() { swap_remove(s_.z.size() - 1); }

    // Solves the problem. After an exception, rollback() restores the previous state.
    void solve();
    void rollback();
    void commit();

    // Returns the largest violation of the optimality conditions, from recomputed sums.
    // The violation of sum(z) = 0 is |sum(z)| relative to sum(|z|).
    double violation();
    const SolveReport& report() const { return report_; }

  private:
    struct Target {
        std::uint32_t sample;
        double z;
    };
    struct OldBound {
        std::uint32_t sample;
        double lower, upper;
    };

    void take_snapshot();
    void index_margin();
    bool optimise(std::size_t max_steps);

    // Adiabatic steps are implemented in svm_steps.cpp.
    void drive(const std::vector<Target>& targets);
    void find_partner(double total);
    void balance(double negligible);
    void correct_margin();
    void enter_new(std::size_t first);
    void enter_active(std::size_t step_limit);
    bool run_rounds(std::size_t max_steps);
    void enter(std::size_t i);
    void open_pair(const BiasInterval& interval);
    void move_in(std::size_t i, double g);
    void drop_hits(double* solved);
    void start_margin(std::size_t i);
    void join_margin(std::size_t i, const double* solved, double pivot_squared);
    void leave_margin(std::size_t position, double* solved = nullptr);
    void clear_margin();
    double diagonal_with_constant(std::size_t i) const { return rows_.diagonal(i) + s_.constant; }
    void gather_margin(const double* by_slot, double added);

    // Rebuilding of the margin set is implemented in svm_margin.cpp.
    void smo(double threshold, std::size_t max_steps);
    double mean_diagonal() const;
    void rebuild_margin();
    void refactor();

    // Sums of kernel values are implemented in svm_sums.cpp. The vector e is updated lazily, when it is read.
    void place_at(std::size_t i, double z);
    void activate(std::size_t i);
    void deactivate(std::size_t slot);
    void trim_active();
    double active_e(std::size_t slot) const;
    void sync_active();
    void sync();
    void resum();
    void resum_outside();
    void hand_out_active();
    double exact_e(std::size_t i);
    void make_exact(std::size_t i);
    double slack_of(std::size_t i) const { return s_.slack - s_.exact_at[i]; }
    bool is_stale() const;
    std::vector<std::uint32_t> violators(double threshold);

    // Optimality conditions are implemented in svm_problem.cpp.
    BiasInterval bias_interval();
    void measure_coefficients();
    double threshold() const;
    bool is_optimal();
    void set_bias();

    KernelRows& rows_;
    double tolerance_;
    // Number of nonzero coefficients whose kernel rows are included in e.
    std::size_t n_support_ = 0;
    double rounding_ = 0.0;      // upper bound of the rounding errors of (Kz)_i, assuming one error per term
    SvmState s_, snapshot_;      // the snapshot has no labels, bounds or factor
    std::size_t n_checked_ = 0;  // number of samples that satisfied their optimality conditions at the last check
    std::size_t n_active_before_ = 0;
    bool has_snapshot_ = false;
    std::vector<Target> targets_;       // new coefficients of the samples whose bounds changed
    std::vector<OldBound> old_bounds_;  // bounds before the update, for rollback
    static constexpr std::int32_t kOutside = -1, kMoving = -2;
    std::vector<std::int32_t> place_;           // position in the margin set, or kOutside or kMoving
    std::vector<double> base_;                  // value of each z_i that is included in e
    std::vector<std::uint32_t> moved_outside_;  // samples outside the active set that moved since e was last updated
    ActiveSet active_;
    std::vector<double> active_e_, active_z_;  // gradient e of each active sample, and the z_i that it includes
    MarginMotion motion_;
    std::vector<double> solved_, changes_, values_;
    std::vector<std::uint32_t> changed_;
    SolveReport report_;
};

}  // namespace steelyard
