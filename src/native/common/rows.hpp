// Views of row-major arrays, and memory aligned to cache lines.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace steelyard {

// Dense, row-major rows.
template <class T>
struct Rows {
    const T* data;
    std::size_t n_rows;
    std::size_t n_features;
};

constexpr std::align_val_t kCacheLine{64};

struct AlignedDelete {
    template <class T>
    void operator()(T* p) const {
        ::operator delete[](p, kCacheLine);
    }
};

// Uninitialized array aligned to a cache line.
template <class T>
using AlignedBuffer = std::unique_ptr<T[], AlignedDelete>;

template <class T>
AlignedBuffer<T> aligned_buffer(std::size_t n) {
    return AlignedBuffer<T>(static_cast<T*>(::operator new[](n * sizeof(T), kCacheLine)));
}

template <class T>
struct AlignedAllocator {
    using value_type = T;
    AlignedAllocator() = default;
    template <class U>
    AlignedAllocator(const AlignedAllocator<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kCacheLine)); }
    void deallocate(T* p, std::size_t) { ::operator delete(p, kCacheLine); }
    template <class U>
    bool operator==(const AlignedAllocator<U>&) const {
        return true;
    }
};

// std::vector aligned to a cache line.
template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace steelyard
