#include "kernels/product_shapley.hpp"

#include "common/denormals.hpp"
#include "common/rows.hpp"
#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

void explain_row(const ProductKernelSum& sum, std::size_t row, double* out) {
    const Denormals flushed(false);
    const std::size_t n = sum.n_columns;
    const auto add_product = loops().shapley.add_product;
    AlignedVector<double> suffix((n + 1) * kShapleyNodes), totals(n * sum.n_scores * kShapleyNodes, 0.0);
    for (std::size_t v = 0; v < sum.n_vectors; ++v)
        add_product(sum.factors + (row * sum.n_vectors + v) * n, sum.reference + v * n, n, sum.coef + v, sum.n_vectors,
                    sum.n_scores, suffix.data(), totals.data());
    for (std::size_t s = 0; s < sum.n_scores; ++s)
        for (std::size_t c = 0; c < n; ++c) {
            double total = 0.0;
            for (std::size_t q = 0; q < kShapleyNodes; ++q) total += totals[(s * n + c) * kShapleyNodes + q];
            out[c * sum.n_scores + s] = total;
        }
}

}  // namespace

void product_shapley(const ProductKernelSum& sum, double* out, unsigned n_threads) {
    parallel_for(sum.n_rows, n_threads,
                 [&](std::size_t row) { explain_row(sum, row, out + row * sum.n_columns * sum.n_scores); });
}

}  // namespace steelyard
