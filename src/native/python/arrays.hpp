// Array types of the bindings: dense, contiguous CPU arrays.
// The bindings only check shapes and manage lifetimes and the GIL; the arithmetic is in the other folders.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/rows.hpp"

namespace steelyard::bind {

namespace nb = nanobind;
using namespace nb::literals;

template <class T, int N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using NumpyArray = nb::ndarray<nb::numpy, T, nb::ndim<N>, nb::c_contig>;

template <class T>
std::span<T> span(const Array<T, 1>& array) {
    return {array.data(), array.size()};
}

template <class T>
Rows<T> rows(const Array<const T, 2>& X) {
    return {X.data(), X.shape(0), X.shape(1)};
}

// Raises ValueError unless the sizes of the arrays agree, so that loops never read or write out of bounds.
inline void require(bool agrees, const char* message) {
    if (!agrees) throw nb::value_error(message);
}

// Releases the GIL for a call with many operations.
// Short calls keep the GIL, because reacquiring it may take milliseconds if another thread holds it.
class UnlockedIfLong {
  public:
    explicit UnlockedIfLong(std::size_t n_operations) {
        if (n_operations > kShort) unlocked_.emplace();
    }

  private:
    static constexpr std::size_t kShort = 50'000;
    std::optional<nb::gil_scoped_release> unlocked_;
};

// Returns a new zero-filled NumPy array that owns its memory.
template <class T, int N>
NumpyArray<T, N> zeros(const std::size_t (&shape)[N]) {
    std::size_t size = 1;
    for (std::size_t extent : shape) size *= extent;
    T* data = new T[size]();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return NumpyArray<T, N>(data, N, shape, owner);
}

// Conversions between vectors and NumPy arrays by copying.
template <class T>
NumpyArray<T, 1> array_of(const std::vector<T>& values) {
    auto array = zeros<T, 1>({values.size()});
    std::copy(values.begin(), values.end(), array.data());
    return array;
}
template <class T>
std::vector<T> vector_of(const Array<const T, 1>& values) {
    return {values.data(), values.data() + values.size()};
}
template <class T>
std::vector<T> vector_of(nb::handle array) {
    return vector_of<T>(nb::cast<Array<const T, 1>>(array));
}

void bind_simd(nb::module_& m);
void bind_gram(nb::module_& m);
void bind_exact_sums(nb::module_& m);
void bind_row_hash(nb::module_& m);
void bind_number_lines(nb::module_& m);
void bind_scores(nb::module_& m);
void bind_maps(nb::module_& m);
void bind_planes(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_sequences(nb::module_& m);
void bind_gradient_boosting(nb::module_& m);
void bind_piecewise(nb::module_& m);
void bind_row_experts(nb::module_& m);
void bind_boundary(nb::module_& m);
void bind_ensemble(nb::module_& m);
void bind_window_auc(nb::module_& m);
void bind_enclosing(nb::module_& m);
void bind_incremental_svc(nb::module_& m);
void bind_koil(nb::module_& m);
void bind_online(nb::module_& m);

}  // namespace steelyard::bind
