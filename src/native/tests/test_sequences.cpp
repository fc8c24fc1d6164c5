// Compares sequence kernels with a reference implementation in long double, cell by cell.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.hpp"
#include "kernels/sequences.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Sequences of pseudo-random lengths, including 1 and lengths around a panel's width.
template <class Symbol>
struct Collection {
    std::vector<Symbol> symbols;
    std::vector<std::int64_t> offsets{0};
    std::size_t n_features;

    Sequences<Symbol> view() const { return {symbols.data(), offsets.data(), offsets.size() - 1, n_features}; }
    std::size_t size() const { return offsets.size() - 1; }
};

Collection<double> trajectories(std::size_t n, std::size_t longest, std::size_t d, unsigned seed) {
    Collection<double> made{{}, {0}, d};
    for (std::size_t s = 0; s < n; ++s) {
        const std::size_t length = 1 + (s * 7 + seed) % longest;
        for (const double value : random_values<double>(length * d, seed + static_cast<unsigned>(s)))
            made.symbols.push_back(value);
        made.offsets.push_back(made.offsets.back() + static_cast<std::int64_t>(length));
    }
    return made;
}

// Returns strings of a small alphabet, some of them empty.
Collection<std::int32_t> strings(std::size_t n, std::size_t longest, unsigned seed) {
    Collection<std::int32_t> made{{}, {0}, 1};
    for (std::size_t s = 0; s < n; ++s) {
        const std::size_t length = (s * 5 + seed) % (longest + 1);
        for (const double value : random_values<double>(length, seed + static_cast<unsigned>(s)))
            made.symbols.push_back(value < -0.5 ? 0 : value < 0.5 ? 1 : 100000);
        made.offsets.push_back(made.offsets.back() + static_cast<std::int64_t>(length));
    }
    return made;
}

double reference(const AlignmentSpec& spec, const Sequences<double>& X, std::size_t a, const Sequences<double>& Z,
                 std::size_t b) {
    const std::size_t n = X.length(a), m = Z.length(b), d = X.n_features;
    std::vector<long double> M((n + 1) * (m + 1), 0.0L);
    M[0] = 1.0L;
    for (std::size_t i = 1; i <= n; ++i)
        for (std::size_t j = 1; j <= m; ++j) {
            long double squared = 0.0L;
            for (std::size_t k = 0; k < d; ++k)
                squared += std::pow(static_cast<long double>(X[a][(i - 1) * d + k] - Z[b][(j - 1) * d + k]), 2.0L);
            const double apart = std::abs(static_cast<double>(i) - static_cast<double>(j));
            const double triangle = spec.band ? std::max(0.0, 1.0 - apart / static_cast<double>(spec.band)) : 1.0;
            const long double w = triangle * std::exp(-spec.gamma * squared);
            M[i * (m + 1) + j] =
                w / (2.0L - w) * (M[(i - 1) * (m + 1) + j] + M[i * (m + 1) + j - 1] + M[(i - 1) * (m + 1) + j - 1]);
        }
    const long double sum = M.back();
    return sum > 0.0L ? static_cast<double>(std::log(sum)) : kNever;
}

// Computes the sum over all edit scripts, and the sum over the scripts that do not end with an insertion.
double reference(const EditSpec& spec, const Sequences<std::int32_t>& X, std::size_t a,
                 const Sequences<std::int32_t>& Z, std::size_t b) {
    const std::size_t n = X.length(a), m = Z.length(b), ld = m + 1;
    std::vector<long double> kept((n + 1) * ld, 0.0L), deleted = kept, inserted = kept;
    kept[0] = 1.0L;
    for (std::size_t i = 0; i <= n; ++i)
        for (std::size_t j = 0; j <= m; ++j) {
            const std::size_t here = i * ld + j;
            if (i > 0) deleted[here] = spec.gap * (kept[here - ld] + deleted[here - ld]);
            if (j > 0) inserted[here] = spec.gap * (kept[here - 1] + deleted[here - 1] + inserted[here - 1]);
            if (i > 0 && j > 0) {
                const double weight = X[a][i - 1] == Z[b][j - 1] ? 1.0 : spec.substitution;
                kept[here] = weight * (kept[here - ld - 1] + deleted[here - ld - 1] + inserted[here - ld - 1]);
            }
        }
    return static_cast<double>(std::log(kept.back() + deleted.back() + inserted.back()));
}

bool agree(double value, double expected) {
    if (expected == kNever) return value == kNever;
    return std::abs(value - expected) <= 1e-9 * (1.0 + std::abs(expected));
}

void block(const AlignmentSpec& spec, Sequences<double> X, Sequences<double> Z, double* out, unsigned n_threads) {
    log_alignment_block(spec, X, Z, out, n_threads);
}
void block(const EditSpec& spec, Sequences<std::int32_t> X, Sequences<std::int32_t> Z, double* out,
           unsigned n_threads) {
    log_edit_block(spec, X, Z, out, n_threads);
}
void matrix(const AlignmentSpec& spec, Sequences<double> X, double* out, unsigned n_threads) {
    log_alignment_matrix(spec, X, out, n_threads);
}
void matrix(const EditSpec& spec, Sequences<std::int32_t> X, double* out, unsigned n_threads) {
    log_edit_matrix(spec, X, out, n_threads);
}
void diagonal(const AlignmentSpec& spec, Sequences<double> X, double* out) { log_alignment_diagonal(spec, X, out, 1); }
void diagonal(const EditSpec& spec, Sequences<std::int32_t> X, double* out) { log_edit_diagonal(spec, X, out, 1); }

template <class Spec, class Symbol>
void check_block(const Spec& spec, const Collection<Symbol>& X, const Collection<Symbol>& Z) {
    on_every_level([&](const std::string& level) {
        std::vector<double> values(X.size() * Z.size());
        block(spec, X.view(), Z.view(), values.data(), 1);
        for (std::size_t i = 0; i < X.size(); ++i)
            for (std::size_t j = 0; j < Z.size(); ++j)
                CHECK(agree(values[i * Z.size() + j], reference(spec, X.view(), i, Z.view(), j)), level, i, j);
    });
}

template <class Spec, class Symbol>
void check_matrix(const Spec& spec, const Collection<Symbol>& X) {
    on_every_level([&](const std::string& level) {
        const std::size_t n = X.size();
        std::vector<double> whole(n * n), by_threads(n * n), as_block(n * n), own(n);
        matrix(spec, X.view(), whole.data(), 1);
        matrix(spec, X.view(), by_threads.data(), 3);
        block(spec, X.view(), X.view(), as_block.data(), 2);
        diagonal(spec, X.view(), own.data());
        CHECK(whole == by_threads, level);
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(own[i] == whole[i * n + i], level, i);
            for (std::size_t j = 0; j < n; ++j) {
                CHECK(whole[i * n + j] == whole[j * n + i], level, i, j);
                CHECK(agree(as_block[i * n + j], whole[i * n + j]), level, i, j);
            }
        }
    });
}

}  // namespace

TEST(alignment_kernel_matches_recursion_for_every_panel_size_and_dimension) {
    for (const std::size_t n : {1, 15, 16, 17, 33})
        for (const std::size_t d : {1, 2, 5})
            check_block(AlignmentSpec{0.4, 0}, trajectories(9, 12, d, 3), trajectories(n, 20, d, 50));
}

TEST(alignment_kernel_with_band_matches_recursion) {
    for (const std::size_t band : {1, 2, 5, 100})
        check_block(AlignmentSpec{0.1, band}, trajectories(20, 15, 2, 7), trajectories(18, 15, 2, 90));
}

TEST(edit_kernel_matches_recursion_including_empty_strings) {
    for (const std::size_t n : {1, 16, 17, 40}) check_block(EditSpec{0.3, 0.2}, strings(11, 9, 2), strings(n, 14, 60));
    check_block(EditSpec{1.0, 1.0}, strings(8, 6, 1), strings(8, 6, 9));
    check_block(EditSpec{1e-300, 1e-300}, strings(8, 6, 1), strings(8, 6, 9));
}

TEST(sequence_matrix_is_symmetric_and_independent_of_threads) {
    check_matrix(AlignmentSpec{0.2, 0}, trajectories(37, 22, 2, 5));
    check_matrix(AlignmentSpec{0.2, 6}, trajectories(37, 22, 2, 5));
    check_matrix(EditSpec{0.4, 0.3}, strings(37, 22, 5));
}

TEST(long_sequences_neither_overflow_nor_underflow) {
    on_every_level([&](const std::string& level) {
        for (const double apart : {0.0, 30.0}) {
            Collection<double> X{std::vector<double>(3000, 0.0), {0, 3000}, 1};
            Collection<double> Z{std::vector<double>(2500, apart), {0, 2500}, 1};
            double value = 0.0;
            log_alignment_block({1.0, 0}, X.view(), Z.view(), &value, 1);
            CHECK(std::isfinite(value), level, apart);
            CHECK(apart > 0.0 ? value < -1e6 : value > 0.0, level, value);
        }
    });
}

TEST(empty_collections_give_empty_results) {
    const Collection<double> none{{}, {0}, 2}, some = trajectories(3, 4, 2, 1);
    log_alignment_block({1.0, 0}, none.view(), some.view(), nullptr, 2);
    log_alignment_matrix({1.0, 0}, none.view(), nullptr, 2);
    log_alignment_diagonal({1.0, 0}, none.view(), nullptr, 2);
}
