// What crosses the border: dense, contiguous CPU arrays. Bindings hold shapes, lifetimes and the
// interpreter lock, and no arithmetic.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <span>

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

// A new zero-filled NumPy array that owns its memory.
template <class T, int N>
NumpyArray<T, N> zeros(const std::size_t (&shape)[N]) {
    std::size_t size = 1;
    for (std::size_t extent : shape) size *= extent;
    T* data = new T[size]();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return NumpyArray<T, N>(data, N, shape, owner);
}

void bind_simd(nb::module_& m);
void bind_gram(nb::module_& m);
void bind_exact_sums(nb::module_& m);
void bind_row_hash(nb::module_& m);
void bind_scores(nb::module_& m);
void bind_maps(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_sequences(nb::module_& m);
void bind_boundary(nb::module_& m);
void bind_window_auc(nb::module_& m);
void bind_enclosing(nb::module_& m);
void bind_incremental_svc(nb::module_& m);
void bind_koil(nb::module_& m);
void bind_online(nb::module_& m);

}  // namespace steelyard::bind
