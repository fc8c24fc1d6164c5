#include "kernels/sequences.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/interrupt.hpp"
#include "common/rows.hpp"
#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Number of rows per task: each panel is used for this many rows before the next panel replaces it in the cache.
constexpr std::size_t kSequenceTaskRows = 8;
constexpr double kLn2 = 0.69314718055994530942;

double log_value(double mantissa, double exponent) {
    if (exponent < kSequenceZero) return -std::numeric_limits<double>::infinity();
    return std::log(mantissa) + exponent * kLn2;
}

// Returns the indices of all sequences, sorted by length.
// After sorting, the sequences of a panel have similar lengths, which saves padding.
template <class Symbol>
std::vector<std::size_t> by_length(const Sequences<Symbol>& X) {
    std::vector<std::size_t> order(X.n_sequences);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return X.length(a) < X.length(b); });
    return order;
}

template <class Symbol>
struct Panel {
    const std::size_t* members;
    std::size_t n_members;
    std::size_t lengths[kSequenceLanes] = {};
    std::size_t longest = 0;
    AlignedBuffer<Symbol> symbols;

    Panel(const Sequences<Symbol>& Z, const std::size_t* first, std::size_t n) : members(first), n_members(n) {
        for (std::size_t s = 0; s < n; ++s) {
            lengths[s] = Z.length(members[s]);
            longest = std::max(longest, lengths[s]);
        }
        const std::size_t d = Z.n_features, size = longest * d * kSequenceLanes;
        symbols = aligned_buffer<Symbol>(size);
        std::fill_n(symbols.get(), size, Symbol(0));
        for (std::size_t s = 0; s < n; ++s)
            for (std::size_t t = 0; t < lengths[s] * d; ++t) symbols[t * kSequenceLanes + s] = Z[members[s]][t];
    }

    SequencePanel<Symbol> view() const { return {symbols.get(), lengths, longest}; }
};

template <class Symbol>
std::vector<Panel<Symbol>> make_panels(const Sequences<Symbol>& Z, const std::vector<std::size_t>& order) {
    std::vector<Panel<Symbol>> panels;
    for (std::size_t first = 0; first < order.size(); first += kSequenceLanes)
        panels.emplace_back(Z, order.data() + first, std::min(kSequenceLanes, order.size() - first));
    return panels;
}

void sums(const AlignmentSpec& spec, const Sequences<double>& X, std::size_t i, SequencePanel<double> panel,
          double* work, double* mantissa, double* exponent) {
    loops().sequence.alignment(spec, X[i], X.length(i), X.n_features, panel, work, mantissa, exponent);
}

void sums(const EditSpec& spec, const Sequences<std::int32_t>& X, std::size_t i, SequencePanel<std::int32_t> panel,
          double* work, double* mantissa, double* exponent) {
    loops().sequence.edit(spec, X[i], X.length(i), panel, work, mantissa, exponent);
}

std::size_t longest_of(const auto& panels) {
    std::size_t longest = 0;
    for (const auto& panel : panels) longest = std::max(longest, panel.longest);
    return longest;
}

// Scratch memory of one thread, allocated before the threads start so that no task can throw.
struct Work {
    AlignedBuffer<double> cells;
    alignas(64) double mantissa[kSequenceLanes], exponent[kSequenceLanes];
};

std::vector<Work> make_work(unsigned n_threads, std::size_t longest) {
    std::vector<Work> work(std::max(1u, n_threads));
    for (Work& one : work) one.cells = aligned_buffer<double>(sequence_work(longest));
    return work;
}

// Calls body(task, work) for every task on several threads, each with its own scratch memory. Polls for interrupts.
template <class Body>
void for_tasks(std::size_t n_tasks, std::vector<Work>& work, Body&& body) {
    std::atomic<std::size_t> next{0};
    SharedPoll poll;
    parallel_for(work.size(), static_cast<unsigned>(work.size()), [&](std::size_t own) {
        for (std::size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks && poll.goes_on();)
            body(task, work[own]);
    });
    poll.rethrow();
}

// Computes log k for all pairs. If `symmetric`, X and Z are the same, and only the lower triangle is computed.
template <class Spec, class Symbol>
void log_values(const Spec& spec, const Sequences<Symbol>& X, const Sequences<Symbol>& Z, bool symmetric, double* out,
                unsigned n_threads) {
    const std::vector<std::size_t> columns = by_length(Z), rows = symmetric ? columns : by_length(X);
    const auto panels = make_panels(Z, columns);
    const std::size_t row_tasks = (rows.size() + kSequenceTaskRows - 1) / kSequenceTaskRows, ld = Z.n_sequences;
    auto work = make_work(n_threads, longest_of(panels));
    for_tasks(row_tasks * panels.size(), work, [&](std::size_t task, Work& own) {
        // Process the longest rows first, so that the last tasks are short and all threads finish at the same time.
        const std::size_t block = row_tasks - 1 - task / panels.size();
        const Panel<Symbol>& panel = panels[task % panels.size()];
        const std::size_t begin = block * kSequenceTaskRows, end = std::min(rows.size(), begin + kSequenceTaskRows);
        const std::size_t first_column = (task % panels.size()) * kSequenceLanes;
        for (std::size_t r = begin; r < end; ++r) {
            if (symmetric && first_column > r) continue;
            sums(spec, X, rows[r], panel.view(), own.cells.get(), own.mantissa, own.exponent);
            for (std::size_t s = 0; s < panel.n_members && !(symmetric && first_column + s > r); ++s) {
                const double value = log_value(own.mantissa[s], own.exponent[s]);
                out[rows[r] * ld + panel.members[s]] = value;
                if (symmetric) out[panel.members[s] * ld + rows[r]] = value;
            }
        }
    });
}

template <class Spec, class Symbol>
void log_diagonal(const Spec& spec, const Sequences<Symbol>& X, double* out, unsigned n_threads) {
    const std::vector<std::size_t> order = by_length(X);
    std::size_t longest = 0;
    for (std::size_t i = 0; i < X.n_sequences; ++i) longest = std::max(longest, X.length(i));
    const auto panels = make_panels(X, order);
    auto work = make_work(n_threads, longest);
    for_tasks(panels.size(), work, [&](std::size_t task, Work& own) {
        const Panel<Symbol>& panel = panels[task];
        for (std::size_t s = 0; s < panel.n_members; ++s) {
            sums(spec, X, panel.members[s], panel.view(), own.cells.get(), own.mantissa, own.exponent);
            out[panel.members[s]] = log_value(own.mantissa[s], own.exponent[s]);
        }
    });
}

}  // namespace

void log_alignment_block(const AlignmentSpec& spec, Sequences<double> X, Sequences<double> Z, double* out,
                         unsigned n_threads) {
    log_values(spec, X, Z, false, out, n_threads);
}
void log_edit_block(const EditSpec& spec, Sequences<std::int32_t> X, Sequences<std::int32_t> Z, double* out,
                    unsigned n_threads) {
    log_values(spec, X, Z, false, out, n_threads);
}
void log_alignment_matrix(const AlignmentSpec& spec, Sequences<double> X, double* out, unsigned n_threads) {
    log_values(spec, X, X, true, out, n_threads);
}
void log_edit_matrix(const EditSpec& spec, Sequences<std::int32_t> X, double* out, unsigned n_threads) {
    log_values(spec, X, X, true, out, n_threads);
}
void log_alignment_diagonal(const AlignmentSpec& spec, Sequences<double> X, double* out, unsigned n_threads) {
    log_diagonal(spec, X, out, n_threads);
}
void log_edit_diagonal(const EditSpec& spec, Sequences<std::int32_t> X, double* out, unsigned n_threads) {
    log_diagonal(spec, X, out, n_threads);
}

}  // namespace steelyard
