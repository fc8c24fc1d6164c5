#include <string>

#include "arrays.hpp"
#include "kernels/sequences.hpp"

namespace steelyard::bind {

namespace {

using Offsets = Array<const std::int64_t, 1>;

// Throws if the offsets do not match the elements, because wrong offsets would cause reads out of bounds.
void check_offsets(const Offsets& offsets, std::size_t n_elements) {
    const std::size_t n = offsets.size();
    bool good = n > 0 && offsets.data()[0] == 0 && static_cast<std::size_t>(offsets.data()[n - 1]) == n_elements;
    for (std::size_t s = 0; good && s + 1 < n; ++s) good = offsets.data()[s] <= offsets.data()[s + 1];
    if (!good) throw nb::value_error("sequence kernel: offsets do not match the elements");
}

Sequences<double> sequences(const Array<const double, 2>& elements, const Offsets& offsets) {
    check_offsets(offsets, elements.shape(0));
    return {elements.data(), offsets.data(), offsets.size() - 1, elements.shape(1)};
}

Sequences<std::int32_t> sequences(const Array<const std::int32_t, 1>& symbols, const Offsets& offsets) {
    check_offsets(offsets, symbols.size());
    return {symbols.data(), offsets.data(), offsets.size() - 1, 1};
}

constexpr const char* kDisagree = "sequence kernel: array shapes disagree";

// Sequence kernels. Each struct names the element type, the two parameters and the loops of a kernel.
struct Alignment {
    using Elements = Array<const double, 2>;
    using Spec = AlignmentSpec;
    using First = double;
    using Second = std::size_t;
    static constexpr const char *name = "log_alignment", *first = "gamma", *second = "band";
    static constexpr auto block = log_alignment_block;
    static constexpr auto matrix = log_alignment_matrix;
    static constexpr auto diagonal = log_alignment_diagonal;
};

struct Edit {
    using Elements = Array<const std::int32_t, 1>;
    using Spec = EditSpec;
    using First = double;
    using Second = double;
    static constexpr const char *name = "log_edit", *first = "substitution", *second = "gap";
    static constexpr auto block = log_edit_block;
    static constexpr auto matrix = log_edit_matrix;
    static constexpr auto diagonal = log_edit_diagonal;
};

template <class Kernel>
void bind_kernel(nb::module_& m) {
    using Elements = typename Kernel::Elements;
    using Spec = typename Kernel::Spec;
    using First = typename Kernel::First;
    using Second = typename Kernel::Second;
    const std::string name = Kernel::name;
    m.def((name + "_block").c_str(),
          [](First first, Second second, Elements X, Offsets X_offsets, Elements Z, Offsets Z_offsets,
             Array<double, 2> out, unsigned n_threads) {
              const auto left = sequences(X, X_offsets), right = sequences(Z, Z_offsets);
              require(left.n_features == right.n_features && out.shape(0) == left.n_sequences &&
                          out.shape(1) == right.n_sequences,
                      kDisagree);
              nb::gil_scoped_release unlocked;
              Kernel::block(Spec{first, second}, left, right, out.data(), n_threads);
          },
          nb::arg(Kernel::first), nb::arg(Kernel::second), "X"_a.noconvert(), "X_offsets"_a.noconvert(),
          "Z"_a.noconvert(), "Z_offsets"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
          "Fill out[i, j] with the logarithm of the kernel of sequences i and j.");
    m.def((name + "_matrix").c_str(),
          [](First first, Second second, Elements X, Offsets X_offsets, Array<double, 2> out, unsigned n_threads) {
              const auto both = sequences(X, X_offsets);
              require(out.shape(0) == both.n_sequences && out.shape(1) == both.n_sequences, kDisagree);
              nb::gil_scoped_release unlocked;
              Kernel::matrix(Spec{first, second}, both, out.data(), n_threads);
          },
          nb::arg(Kernel::first), nb::arg(Kernel::second), "X"_a.noconvert(), "X_offsets"_a.noconvert(),
          "out"_a.noconvert(), "n_threads"_a = 1,
          "Fill out[i, j] for one collection of sequences. The result is exactly symmetric.");
    m.def((name + "_diagonal").c_str(),
          [](First first, Second second, Elements X, Offsets X_offsets, Array<double, 1> out, unsigned n_threads) {
              const auto all = sequences(X, X_offsets);
              require(out.size() == all.n_sequences, kDisagree);
              nb::gil_scoped_release unlocked;
              Kernel::diagonal(Spec{first, second}, all, out.data(), n_threads);
          },
          nb::arg(Kernel::first), nb::arg(Kernel::second), "X"_a.noconvert(), "X_offsets"_a.noconvert(),
          "out"_a.noconvert(), "n_threads"_a = 1,
          "Fill out[i] with the logarithm of the kernel of sequence i with itself.");
}

}  // namespace

void bind_sequences(nb::module_& m) {
    bind_kernel<Alignment>(m);
    bind_kernel<Edit>(m);
}

}  // namespace steelyard::bind
