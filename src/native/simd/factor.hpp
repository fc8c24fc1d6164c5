// Blocked Cholesky factorization, solution and inverse.
// Four rows are processed together, so that each row with which they are multiplied is loaded once.
#pragma once

#include "simd/loops_factor.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// out[r] = sum over k < n of a[r * stride + k] * b[k]
template <size_t Rows>
STEELYARD_ALWAYS_INLINE static inline void row_products(const double* a, size_t stride, const double* b, size_t n,
                                                        double* out) {
    VecD sums[Rows] = {};
    size_t k = 0;
    for (; k + kDoubles <= n; k += kDoubles) {
        const VecD right = load(b + k);
        for (size_t r = 0; r < Rows; ++r) sums[r] += load(a + r * stride + k) * right;
    }
    for (size_t r = 0; r < Rows; ++r) out[r] = lane_sum(sums[r]);
    for (; k < n; ++k)
        for (size_t r = 0; r < Rows; ++r) out[r] += a[r * stride + k] * b[k];
}

// -- factorization of one matrix --------------------------------------------------------------------------------------
// Left-looking blocked factorization: blocks of rows, and panels of columns from left to right.
// The first step subtracts the products with all columns to the left, one register tile at a time.
// The second step factors the panel itself. The rows of a block stay in the L2 cache.
// Rows above the block are read in groups of columns that stay in the L1 cache.

// Number of columns of a tile of four rows, chosen so that all sums fit in registers (12 of 16 registers with AVX2).
constexpr size_t kTile = kDoubles == 8 ? 4 : kDoubles == 4 ? 3 : 2;
// Number of columns of a panel, a multiple of the vector width and of the tile width.
constexpr size_t kPanel = kDoubles == 4 ? 12 : 8;
constexpr size_t kRowBlock = 4 * kPanel;
constexpr size_t kColumnBlock = 48 * kPanel;  // number of columns per partial sum of products

STEELYARD_ALWAYS_INLINE static inline double lane_total(VecD v) {  // returns the pairwise sum of all lanes
    for (size_t half = kDoubles / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane) v[lane] += v[lane + half];
    return v[0];
}

// out[r][c] = sum over k < n of a[r * stride + k] * b[c * stride + k], where n is a multiple of the vector width.
template <size_t Rows, size_t Columns>
STEELYARD_ALWAYS_INLINE static inline void tile_products(const double* a, const double* b, size_t stride, size_t n,
                                                         double (*out)[kPanel]) {
    VecD sums[Rows][Columns] = {};
    for (size_t k = 0; k < n; k += kDoubles) {
        VecD right[Columns];
        for (size_t c = 0; c < Columns; ++c) right[c] = load(b + c * stride + k);
        for (size_t r = 0; r < Rows; ++r) {
            const VecD left = load(a + r * stride + k);
            for (size_t c = 0; c < Columns; ++c) sums[r][c] += left * right[c];
        }
    }
    for (size_t r = 0; r < Rows; ++r)
        for (size_t c = 0; c < Columns; ++c) out[r][c] = lane_total(sums[r][c]);
}

// Subtracts from the entries of a panel the products with n columns, which begin at `rows` and `above`.
template <size_t Rows>
static void subtract_products(const double* rows, const double* above, size_t stride, size_t n, double* entries,
                              size_t width) {
    double products[Rows][kPanel];
    size_t c = 0;
    for (; c + kTile <= width; c += kTile)
        tile_products<Rows, kTile>(rows, above + c * stride, stride, n,
                                   reinterpret_cast<double(*)[kPanel]>(&products[0][c]));
    for (; c < width; ++c)
        tile_products<Rows, 1>(rows, above + c * stride, stride, n,
                               reinterpret_cast<double(*)[kPanel]>(&products[0][c]));
    for (size_t r = 0; r < Rows; ++r)
        for (size_t k = 0; k < width; ++k) entries[r * stride + k] -= products[r][k];
}

// Computes the entries of a panel in the rows below its diagonal block.
template <size_t Rows>
static void finish_rows(double* rows, const double* above, size_t stride, size_t n_left, size_t width) {
    for (size_t c = 0; c < width; ++c) {
        const double* pivot_row = above + c * stride + n_left;
        const double inverse = 1.0 / pivot_row[c];
        for (size_t r = 0; r < Rows; ++r) {
            double* row = rows + r * stride + n_left;
            double value = row[c];
            for (size_t k = 0; k < c; ++k) value -= row[k] * pivot_row[k];
            row[c] = value * inverse;
        }
    }
}

// Factors the diagonal block of a panel. Returns false if a pivot is not positive.
static bool factor_panel(double* rows, size_t stride, size_t n_left, size_t width) {
    for (size_t c = 0; c < width; ++c) {
        double* row = rows + c * stride + n_left;
        for (size_t j = 0; j <= c; ++j) {
            const double* other = rows + j * stride + n_left;
            double value = row[j];
            for (size_t k = 0; k < j; ++k) value -= row[k] * other[k];
            if (j < c) {
                row[j] = value / other[j];
                continue;
            }
            if (!(value > 0.0)) return false;
            row[c] = square_root(value);
        }
    }
    return true;
}

// Subtracts the products with the columns left of a panel from its entries in the rows from first to end.
static void subtract_left(double* matrix, size_t stride, size_t left, size_t width, size_t first, size_t end) {
    for (size_t column = 0; column < left; column += kColumnBlock) {
        const size_t n = column + kColumnBlock < left ? kColumnBlock : left - column;
        const double* above = matrix + left * stride + column;
        size_t i = first;
        for (; i + 4 <= end; i += 4)
            subtract_products<4>(matrix + i * stride + column, above, stride, n, matrix + i * stride + left, width);
        for (; i < end; ++i)
            subtract_products<1>(matrix + i * stride + column, above, stride, n, matrix + i * stride + left, width);
    }
}

static bool factor_matrix(double* matrix, size_t n, size_t stride) {
    for (size_t first = 0; first < n; first += kRowBlock) {
        const size_t end = first + kRowBlock < n ? first + kRowBlock : n;
        for (size_t left = 0; left < end; left += kPanel) {
            const size_t width = left + kPanel < n ? kPanel : n - left;
            const double* above = matrix + left * stride;
            size_t i = first;
            if (left >= first) {
                // Some entries above the diagonal are overwritten too, but they are never read.
                subtract_left(matrix, stride, left, width, left, end);
                if (!factor_panel(matrix + left * stride, stride, left, width)) return false;
                i = left + width;
            } else {
                subtract_left(matrix, stride, left, width, first, end);
            }
            for (; i + 4 <= end; i += 4) finish_rows<4>(matrix + i * stride, above, stride, left, width);
            for (; i < end; ++i) finish_rows<1>(matrix + i * stride, above, stride, left, width);
        }
    }
    return true;
}

static void solve_factored(const double* factor, size_t n, size_t stride, double* right) {
    for (size_t i = 0; i < n; ++i) {
        double product;
        row_products<1>(factor + i * stride, stride, right, i, &product);
        right[i] = (right[i] - product) / factor[i * stride + i];
    }
    for (size_t i = n; i-- > 0;) {
        const double* row = factor + i * stride;
        right[i] /= row[i];
        const VecD value = broadcast(right[i]);
        size_t k = 0;
        for (; k + kDoubles <= i; k += kDoubles) store(right + k, load(right + k) - value * load(row + k));
        for (; k < i; ++k) right[k] -= right[i] * row[k];
    }
}

// target += sum over r of factors[r] * rows[r]. Entries are written up to the end of the register that contains n - 1.
template <size_t Rows>
STEELYARD_ALWAYS_INLINE static inline void add_multiples(const double* rows, size_t stride, const double* factors,
                                                         size_t n, double* target) {
    VecD each[Rows];
    for (size_t r = 0; r < Rows; ++r) each[r] = broadcast(factors[r]);
    for (size_t k = 0; k < n; k += kDoubles) {
        VecD sum = load(target + k);
        for (size_t r = 0; r < Rows; ++r) sum += each[r] * load(rows + r * stride + k);
        store(target + k, sum);
    }
}

static void invert_factored(const double* factor, size_t n, size_t stride, double* work, double* inverse) {
    constexpr size_t together = 4;
    for (size_t i = 0; i < n; ++i) {  // computes row i of inv(L) from the rows above it
        const double* row = factor + i * stride;
        double* mine = work + i * stride;
        const double pivot = 1.0 / row[i];
        size_t k = 0;
        for (; k + together <= i; k += together)
            add_multiples<together>(work + k * stride, stride, row + k, k + together, mine);
        for (; k < i; ++k) add_multiples<1>(work + k * stride, stride, row + k, k + 1, mine);
        for (k = 0; k < i; ++k) mine[k] *= -pivot;
        mine[i] = pivot;
    }
    size_t i = 0;
    for (; i + together <= n; i += together)  // computes inv(L)' inv(L)
        for (size_t a = 0; a < i + together; ++a) {
            const double* rows = work + i * stride;
            const double factors[together] = {rows[a], rows[stride + a], rows[2 * stride + a], rows[3 * stride + a]};
            add_multiples<together>(rows, stride, factors, a + 1, inverse + a * stride);
        }
    for (; i < n; ++i)
        for (size_t a = 0; a <= i; ++a)
            add_multiples<1>(work + i * stride, stride, work + i * stride + a, a + 1, inverse + a * stride);
}

static double quadratic_form(const double* matrix, size_t n, size_t stride, const double* x) {
    double total = 0.0, product;
    for (size_t i = 0; i < n; ++i) {
        row_products<1>(matrix + i * stride, stride, x, i, &product);
        total += x[i] * (2.0 * product + matrix[i * stride + i] * x[i]);
    }
    return total;
}

// -- small systems, one per SIMD lane ------------------------------------------------------------------

static void combine_lanes(const double* total, const double* penalty, const double* share, const double* own_share,
                          size_t n_entries, const double* own, double* matrix) {
    const VecD a = load(share), kappa = load(own_share);
    for (size_t e = 0; e < n_entries; ++e)
        store(matrix + e * kDoubles, a * total[e] + kappa * load(own + e * kDoubles) + penalty[e]);
}

// out[r] = sum over k < n of a_r[k] * b[k], in every lane. Each row of a is one entry longer than the previous one.
template <size_t Rows>
STEELYARD_ALWAYS_INLINE static inline void lane_products(const double* const* a, const double* b, size_t n, VecD* out) {
    for (size_t r = 0; r < Rows; ++r) out[r] = VecD{};
    for (size_t k = 0; k < n; ++k) {
        const VecD right = load(b + k * kDoubles);
        for (size_t r = 0; r < Rows; ++r) out[r] += load(a[r] + k * kDoubles) * right;
    }
}

STEELYARD_ALWAYS_INLINE static inline VecD root_of(VecD x) {
    for (size_t lane = 0; lane < kDoubles; ++lane) x[lane] = square_root(x[lane]);
    return x;
}

template <size_t Rows>
static bool factor_lane_rows(double* matrix, size_t first) {
    double* rows[Rows];
    for (size_t r = 0; r < Rows; ++r) rows[r] = matrix + (first + r) * (first + r + 1) / 2 * kDoubles;
    VecD products[Rows];
    for (size_t j = 0; j < first; ++j) {
        const double* above = matrix + j * (j + 1) / 2 * kDoubles;
        lane_products<Rows>(rows, above, j, products);
        const VecD inverse = 1.0 / load(above + j * kDoubles);
        for (size_t r = 0; r < Rows; ++r)
            store(rows[r] + j * kDoubles, (load(rows[r] + j * kDoubles) - products[r]) * inverse);
    }
    for (size_t c = 0; c < Rows; ++c) {
        const size_t j = first + c;
        lane_products<Rows>(rows, rows[c], j, products);
        const VecD pivot = load(rows[c] + j * kDoubles) - products[c];
        for (size_t lane = 0; lane < kDoubles; ++lane)
            if (!(pivot[lane] > 0.0)) return false;
        const VecD root = root_of(pivot);
        store(rows[c] + j * kDoubles, root);
        for (size_t r = c + 1; r < Rows; ++r)
            store(rows[r] + j * kDoubles, (load(rows[r] + j * kDoubles) - products[r]) / root);
    }
    return true;
}

static bool factor_lanes(double* matrix, size_t n) {
    size_t first = 0;
    for (; first + 4 <= n; first += 4)
        if (!factor_lane_rows<4>(matrix, first)) return false;
    for (; first < n; ++first)
        if (!factor_lane_rows<1>(matrix, first)) return false;
    return true;
}

static void solve_lanes(const double* factor, size_t n, double* right) {
    for (size_t i = 0; i < n; ++i) {
        const double* row = factor + i * (i + 1) / 2 * kDoubles;
        VecD product;
        lane_products<1>(&row, right, i, &product);
        store(right + i * kDoubles, (load(right + i * kDoubles) - product) / load(row + i * kDoubles));
    }
    for (size_t i = n; i-- > 0;) {
        const double* row = factor + i * (i + 1) / 2 * kDoubles;
        const VecD value = load(right + i * kDoubles) / load(row + i * kDoubles);
        store(right + i * kDoubles, value);
        for (size_t k = 0; k < i; ++k)
            store(right + k * kDoubles, load(right + k * kDoubles) - value * load(row + k * kDoubles));
    }
}

static void quadratic_lanes(const double* own, const double* shared, size_t n, const double* x, double* of_own,
                            double* of_shared) {
    VecD own_total{}, shared_total{};
    for (size_t i = 0, e = 0; i < n; ++i, ++e) {
        VecD own_product{}, shared_product{};
        for (size_t j = 0; j < i; ++j, ++e) {
            const VecD right = load(x + j * kDoubles);
            own_product += load(own + e * kDoubles) * right;
            shared_product += shared[e] * right;
        }
        const VecD mine = load(x + i * kDoubles);
        own_total += mine * (2.0 * own_product + load(own + e * kDoubles) * mine);
        shared_total += mine * (2.0 * shared_product + shared[e] * mine);
    }
    store(of_own, own_total);
    store(of_shared, shared_total);
}

constexpr FactorLoops factor_loops{factor_matrix, solve_factored, invert_factored, quadratic_form, kDoubles,
                                   combine_lanes, factor_lanes,   solve_lanes,     quadratic_lanes};

}  // namespace steelyard::STEELYARD_LEVEL
