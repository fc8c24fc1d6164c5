#include "svm/incremental_svc.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "proximal/row_hash.hpp"

namespace steelyard {

namespace {

std::uint64_t hash_row(const double* x, std::size_t n_features, std::int32_t code, double weight) {
    std::uint64_t sum = 0;
    for (std::size_t j = 0; j < n_features; ++j) sum += hash_value(j, x[j]);
    return scramble(sum + scramble(std::bit_cast<std::uint64_t>(weight) + static_cast<std::uint64_t>(code) + 1));
}

}  // namespace

IncrementalSvc::IncrementalSvc(std::size_t n_features, KernelSpec spec, KernelFunction function,
                               std::size_t budget_bytes)
    : rows_(n_features, spec, std::move(function), budget_bytes) {}

// -- atomic update of rows and problems ---------------------------------------------------------------------------

void IncrementalSvc::update(LabelledRows add, LabelledRows retire, const std::vector<ProblemSpec>& specs,
                            double tolerance) {
    const std::size_t n_before = rows_.size();
    std::vector<std::uint32_t> leaving;
    Problems chosen;
    try {
        append(add);
        take_from_index(retire, leaving);
        chosen = choose_problems(specs);
        for (std::size_t k = 0; k < specs.size(); ++k) {
            chosen[k]->svm.set_tolerance(tolerance);
            prepare(*chosen[k], specs[k], leaving);
            chosen[k]->svm.solve();
        }
    } catch (...) {
        roll_back(n_before, leaving);
        throw;
    }
    // No statement after this line can throw.
    problems_ = std::move(chosen);
    for (std::size_t k = 0; k < specs.size(); ++k) {
        problems_[k]->spec = specs[k];
        problems_[k]->svm.commit();
    }
    std::sort(leaving.begin(), leaving.end(),
              std::greater<>());  // descending order, so that smaller row numbers stay valid during removal
    for (const std::uint32_t i : leaving) remove_row(i);
    release_rows();
    version_.fetch_add(1, std::memory_order_release);
}

bool IncrementalSvc::slide(const double* in, std::int32_t in_code, const double* out, std::int32_t out_code,
                           double tolerance) {
    if (count(in_code) == 0 || count(out_code) < 2) return false;
    std::vector<ProblemSpec> specs;
    for (const auto& problem : problems_) specs.push_back(problem->spec);
    const double weight = 1.0;
    try {
        update({in, {&in_code, 1}, {&weight, 1}}, {out, {&out_code, 1}, {&weight, 1}}, specs, tolerance);
    } catch (const UnknownRow&) {
        return false;
    } catch (const SolverFailure&) {
        return false;
    }
    return true;
}

std::size_t IncrementalSvc::count(std::int32_t code) const {
    const auto place = static_cast<std::size_t>(code);
    return place < counts_.size() ? counts_[place] : 0;
}

void IncrementalSvc::count_row(std::int32_t code, int change) {
    const auto place = static_cast<std::size_t>(code);
    if (place >= counts_.size()) counts_.resize(place + 1);
    counts_[place] += static_cast<std::size_t>(change);
}

std::vector<std::uint32_t> IncrementalSvc::support() const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < codes_.size(); ++i)
        if (std::any_of(problems_.begin(), problems_.end(),
                        [i](const auto& problem) { return problem->svm.state().z[i] != 0.0; }))
            found.push_back(i);
    return found;
}

double IncrementalSvc::score(const double* x) {
    const SvmState& state = problems_.front()->svm.state();
    if (!expansion_ || expansion_->version != version()) {
        if (!expansion_) expansion_.emplace(Expansion{0, PackedRows<double>(rows_.n_features()), {}});
        expansion_->vectors.clear();
        expansion_->coef.clear();
        for (std::size_t i = 0; i < state.z.size(); ++i) {
            if (state.z[i] == 0.0) continue;
            expansion_->vectors.append(rows_.sample(i));
            expansion_->coef.push_back(state.z[i]);
        }
        expansion_->version = version();
    }
    double sum = 0.0;
    kernel_sums(rows_.kernel(), Rows<double>{x, 1, rows_.n_features()}, expansion_->vectors, expansion_->coef.data(),
                &sum, 1);
    return sum + state.bias;
}

void IncrementalSvc::append(LabelledRows rows) {
    const std::size_t d = rows_.n_features();
    for (std::size_t k = 0; k < rows.codes.size(); ++k) {
        const double* x = rows.X + k * d;
        rows_.append(x);
        const double diagonal = rows_.diagonal(rows_.size() - 1);
        if (!(diagonal >= 0.0)) throw SolverFailure("the kernel is not positive: it is below 0 for a row with itself");
        codes_.push_back(rows.codes[k]);
        count_row(rows.codes[k], 1);
        weights_.push_back(rows.weights[k]);
        hashes_.push_back(hash_row(x, d, rows.codes[k], rows.weights[k]));
        index_.insert(static_cast<std::uint32_t>(codes_.size() - 1), hashes_.back());
    }
}

bool IncrementalSvc::equals(std::size_t i, const double* x, std::int32_t code, double weight) const {
    return codes_[i] == code && weights_[i] == weight && std::equal(x, x + rows_.n_features(), rows_.sample(i));
}

void IncrementalSvc::take_from_index(LabelledRows rows, std::vector<std::uint32_t>& taken) {
    const std::size_t d = rows_.n_features();
    for (std::size_t k = 0; k < rows.codes.size(); ++k) {
        const double* x = rows.X + k * d;
        const std::uint64_t hash = hash_row(x, d, rows.codes[k], rows.weights[k]);
        std::uint32_t found = index_.first(hash);
        while (found != RowIndex::kNone && !equals(found, x, rows.codes[k], rows.weights[k]))
            found = index_.next(found);
        if (found == RowIndex::kNone) throw UnknownRow{k};
        taken.push_back(found);
        index_.erase(found);
    }
}

IncrementalSvc::Problems IncrementalSvc::choose_problems(const std::vector<ProblemSpec>& specs) {
    Problems chosen;
    for (const ProblemSpec& spec : specs) {
        const auto known = std::find_if(problems_.begin(), problems_.end(),
                                        [&](const auto& problem) { return problem->spec.positive == spec.positive; });
        chosen.push_back(known != problems_.end()
                             ? *known
                             : std::make_shared<Problem>(Problem{{spec.positive, {}}, SvmProblem(rows_, 0.0)}));
    }
    return chosen;
}

void IncrementalSvc::prepare(Problem& problem, const ProblemSpec& spec, const std::vector<std::uint32_t>& leaving) {
    SvmProblem& svm = problem.svm;
    const std::size_t n_known = svm.state().z.size();
    const auto bound = [&](std::size_t i) {
        return spec.class_bounds[static_cast<std::size_t>(codes_[i])] * weights_[i];
    };
    std::vector<double> y, bounds;
    for (std::size_t i = n_known; i < rows_.size(); ++i) {
        y.push_back(codes_[i] == spec.positive ? 1.0 : -1.0);
        bounds.push_back(bound(i));
    }
    svm.extend(y, bounds);
    std::vector<std::uint8_t> is_leaving;
    if (n_known > 0 && spec.class_bounds != problem.spec.class_bounds) {
        is_leaving.resize(rows_.size());
        for (const std::uint32_t i : leaving) is_leaving[i] = 1;
        for (std::size_t i = 0; i < n_known; ++i)
            if (!is_leaving[i]) svm.set_bound(i, bound(i));
    }
    for (const std::uint32_t i : leaving) svm.set_bound(i, 0.0);
}

void IncrementalSvc::roll_back(std::size_t n_before, const std::vector<std::uint32_t>& leaving) {
    // Insert the rows in their original order.
    for (auto i = leaving.rbegin(); i != leaving.rend(); ++i) index_.insert(*i, hashes_[*i]);
    for (auto& problem : problems_) {
        problem->svm.rollback();
        while (problem->svm.state().z.size() > n_before) problem->svm.pop();
    }
    while (codes_.size() > n_before) {
        const auto last = static_cast<std::uint32_t>(codes_.size() - 1);
        index_.erase(last);
        count_row(codes_.back(), -1);
        codes_.pop_back();
        weights_.pop_back();
        hashes_.pop_back();
    }
    while (rows_.size() > n_before) rows_.pop();
}

// Removes row i, whose entry in index_ must already be erased. The last row is renumbered to i.
void IncrementalSvc::remove_row(std::uint32_t i) {
    const auto last = static_cast<std::uint32_t>(codes_.size() - 1);
    count_row(codes_[i], -1);
    if (i != last) {
        index_.renumber(last, i);
        codes_[i] = codes_[last];
        weights_[i] = weights_[last];
        hashes_[i] = hashes_[last];
    }
    codes_.pop_back();
    weights_.pop_back();
    hashes_.pop_back();
    for (auto& problem : problems_) problem->svm.swap_remove(i);
    rows_.swap_remove(i);
}

// Releases cached kernel rows that no support vector needs, but only after many of them have accumulated.
// Samples that leave the solution often return, so their rows may be needed again.
void IncrementalSvc::release_rows() {
    constexpr std::size_t spare = 32;
    if (rows_.n_kept() <= n_wanted_ + n_wanted_ / 8 + spare) return;
    rows_.release_if([this](std::size_t i) {
        return std::all_of(problems_.begin(), problems_.end(),
                           [i](const auto& problem) { return problem->svm.state().z[i] == 0.0; });
    });
    n_wanted_ = rows_.n_kept();
}

// -- loading from a file ------------------------------------------------------------------------------------------

void IncrementalSvc::restore_rows(LabelledRows rows, const RowsInUse& in_use) {
    while (rows_.precision() < in_use.precision) rows_.widen();
    append(rows);
    index_ = {};
    for (const std::uint32_t i : in_use.order) index_.insert(i, hashes_[i]);
    n_wanted_ = in_use.n_wanted;
    for (const std::uint32_t i : in_use.kept) rows_.keep(i);
}

void IncrementalSvc::restore_problem(ProblemSpec spec, SvmState state, const std::vector<std::uint32_t>& active) {
    auto problem = std::make_shared<Problem>(Problem{std::move(spec), SvmProblem(rows_, 0.0)});
    problem->svm.restore(std::move(state), active);
    problems_.push_back(std::move(problem));
    expansion_.reset();
}

}  // namespace steelyard
