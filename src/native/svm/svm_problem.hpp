// One two-class C-SVM, kept at its optimum while samples come, go and change their bounds.
//
// In signed coefficients z_i = y_i alpha_i the dual problem is
//
//     minimise 1/2 z'Kz - y'z   subject to   sum(z) = 0,   lower_i <= z_i <= upper_i
//
// with [lower, upper] = [0, C_i] for y = +1 and [-C_i, 0] for y = -1. With e_i = (Kz)_i - y_i and the bias b the
// decision function is f(x) = k(x)'z + b, and z is optimal when
//
//     e_i + b >= 0 wherever z_i could grow,   e_i + b <= 0 wherever z_i could fall.
//
// The margin set holds samples strictly between their bounds for which e_i + b = 0 is kept by a factor of their
// kernel matrix. Samples outside of it may lie between their bounds too, if their kernel rows depend on those of the
// margin set: then e_i + b = 0 follows.
//
// Samples that move are in the active set, for which e is kept in double. For all others it may be off by what sums of
// kernel rows in fewer bytes can have cost since it was last exact: who is that near to violating is summed exactly
// before anything is concluded. So the conditions hold as they would with doubles throughout.
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

// The conditions could not be met to the tolerance; whoever called goes back to the state before.
struct SolverFailure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// How the last solve went.
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

    // Samples of the kernel rows that the problem does not know yet become samples of the problem, without weight.
    void extend(const std::vector<double>& y, const std::vector<double>& bounds);
    // Wants a sample to have this bound; 0 takes it out of the solution. Takes effect in solve().
    void set_bound(std::size_t i, double bound);
    // Sample i, without weight, goes; the last one takes its number.
    void swap_remove(std::size_t i);
    void pop() { swap_remove(s_.z.size() - 1); }

    // Brings the problem to its optimum. When it throws, rollback() leads back.
    void solve();
    void rollback();
    void commit();

    // The largest violation of the conditions above, from sums made anew; of sum(z) = 0, as a share of sum(|z|).
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

    // Steps along which the margin set responds (svm_steps.cpp).
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

    // The margin set anew (svm_margin.cpp).
    void smo(double threshold, std::size_t max_steps);
    double mean_diagonal() const;
    void rebuild_margin();
    void refactor();

    // Sums (svm_sums.cpp): e is brought up to date only when it is looked at.
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

    // Conditions.
    BiasInterval bias_interval();
    void measure_coefficients();
    double threshold() const;
    bool is_optimal();
    void settle_bias();

    KernelRows& rows_;
    double tolerance_;
    // Of the coefficients that e knows: how many are not 0, and
    std::size_t n_support_ = 0;
    double rounding_ = 0.0;      // an upper bound of what one rounding in each term of (Kz)_i can amount to
    SvmState s_, snapshot_;      // the snapshot has no labels, no bounds and no factor
    std::size_t n_checked_ = 0;  // samples that met their conditions when last looked at
    std::size_t n_active_before_ = 0;
    bool has_snapshot_ = false;
    std::vector<Target> targets_;       // where samples must go because their bounds moved
    std::vector<OldBound> old_bounds_;  // for rollback
    static constexpr std::int32_t kOutside = -1, kMoving = -2;
    std::vector<std::int32_t> place_;           // position in the margin set, or one of these
    std::vector<double> base_;                  // z that e knows
    std::vector<std::uint32_t> moved_outside_;  // of the active set, since e knew of all
    ActiveSet active_;
    std::vector<double> active_e_, active_z_;  // by slot: exact e, and the z of the member that it knows
    MarginMotion motion_;
    std::vector<double> solved_, changes_, values_;
    std::vector<std::uint32_t> changed_;
    SolveReport report_;
};

}  // namespace steelyard
