#include "arrays.hpp"
#include "steelyard/sequences.hpp"

namespace steelyard::bind {

namespace {

using Offsets = Array<const std::int64_t, 1>;

// Offsets come from our own Python code, but a wrong one would read out of bounds.
void check_offsets(const Offsets& offsets, std::size_t n_elements) {
    const std::size_t n = offsets.size();
    bool good = n > 0 && offsets.data()[0] == 0 && static_cast<std::size_t>(offsets.data()[n - 1]) == n_elements;
    for (std::size_t s = 0; good && s + 1 < n; ++s) good = offsets.data()[s] <= offsets.data()[s + 1];
    if (!good) throw nb::value_error("sequence kernel: offsets do not fit the elements");
}

Sequences<double> sequences(const Array<const double, 2>& elements, const Offsets& offsets) {
    check_offsets(offsets, elements.shape(0));
    return {elements.data(), offsets.data(), offsets.size() - 1, elements.shape(1)};
}

Sequences<std::int32_t> sequences(const Array<const std::int32_t, 1>& symbols, const Offsets& offsets) {
    check_offsets(offsets, symbols.size());
    return {symbols.data(), offsets.data(), offsets.size() - 1, 1};
}

void require_shapes(bool agrees) { require(agrees, "sequence kernel: array shapes disagree"); }

}  // namespace

void bind_sequences(nb::module_& m) {
    using Elements = Array<const double, 2>;
    using Symbols = Array<const std::int32_t, 1>;
    m.def(
        "log_alignment_block",
        [](double gamma, std::size_t band, Elements X, Offsets X_offsets, Elements Z, Offsets Z_offsets,
           Array<double, 2> out, unsigned n_threads) {
            const auto left = sequences(X, X_offsets), right = sequences(Z, Z_offsets);
            require_shapes(left.n_features == right.n_features && out.shape(0) == left.n_sequences &&
                           out.shape(1) == right.n_sequences);
            nb::gil_scoped_release unlocked;
            log_alignment_block({gamma, band}, left, right, out.data(), n_threads);
        },
        "gamma"_a, "band"_a, "X"_a.noconvert(), "X_offsets"_a.noconvert(), "Z"_a.noconvert(), "Z_offsets"_a.noconvert(),
        "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[i, j] with the logarithm of the global alignment kernel of sequences i and j.");
    m.def(
        "log_alignment_matrix",
        [](double gamma, std::size_t band, Elements X, Offsets X_offsets, Array<double, 2> out, unsigned n_threads) {
            const auto both = sequences(X, X_offsets);
            require_shapes(out.shape(0) == both.n_sequences && out.shape(1) == both.n_sequences);
            nb::gil_scoped_release unlocked;
            log_alignment_matrix({gamma, band}, both, out.data(), n_threads);
        },
        "gamma"_a, "band"_a, "X"_a.noconvert(), "X_offsets"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "The block of a collection with itself, symmetric to the last bit.");
    m.def(
        "log_alignment_diagonal",
        [](double gamma, std::size_t band, Elements X, Offsets X_offsets, Array<double, 1> out, unsigned n_threads) {
            const auto all = sequences(X, X_offsets);
            require_shapes(out.size() == all.n_sequences);
            nb::gil_scoped_release unlocked;
            log_alignment_diagonal({gamma, band}, all, out.data(), n_threads);
        },
        "gamma"_a, "band"_a, "X"_a.noconvert(), "X_offsets"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[i] with the value of sequence i with itself.");
    m.def(
        "log_edit_block",
        [](double substitution, double gap, Symbols X, Offsets X_offsets, Symbols Z, Offsets Z_offsets,
           Array<double, 2> out, unsigned n_threads) {
            const auto left = sequences(X, X_offsets), right = sequences(Z, Z_offsets);
            require_shapes(out.shape(0) == left.n_sequences && out.shape(1) == right.n_sequences);
            nb::gil_scoped_release unlocked;
            log_edit_block({substitution, gap}, left, right, out.data(), n_threads);
        },
        "substitution"_a, "gap"_a, "X"_a.noconvert(), "X_offsets"_a.noconvert(), "Z"_a.noconvert(),
        "Z_offsets"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[i, j] with the logarithm of the edit kernel of strings i and j.");
    m.def(
        "log_edit_matrix",
        [](double substitution, double gap, Symbols X, Offsets X_offsets, Array<double, 2> out, unsigned n_threads) {
            const auto both = sequences(X, X_offsets);
            require_shapes(out.shape(0) == both.n_sequences && out.shape(1) == both.n_sequences);
            nb::gil_scoped_release unlocked;
            log_edit_matrix({substitution, gap}, both, out.data(), n_threads);
        },
        "substitution"_a, "gap"_a, "X"_a.noconvert(), "X_offsets"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "The block of a collection with itself, symmetric to the last bit.");
    m.def(
        "log_edit_diagonal",
        [](double substitution, double gap, Symbols X, Offsets X_offsets, Array<double, 1> out, unsigned n_threads) {
            const auto all = sequences(X, X_offsets);
            require_shapes(out.size() == all.n_sequences);
            nb::gil_scoped_release unlocked;
            log_edit_diagonal({substitution, gap}, all, out.data(), n_threads);
        },
        "substitution"_a, "gap"_a, "X"_a.noconvert(), "X_offsets"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[i] with the value of string i with itself.");
}

}  // namespace steelyard::bind
