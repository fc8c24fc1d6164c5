// The hot loops of the proximal statistics: packing rows into panels and summing their outer products.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// A block of rows [x - origin, -1] in panel form: panel p holds columns p*width .. p*width + width - 1,
// row after row, so that the inner loop reads memory in order. Columns past the end are zero.
struct PackedBlock {
    double* data;
    std::size_t rows;
    std::size_t panel_stride;  // doubles from one panel to the next
};

struct PanelRange {
    std::size_t begin, end;
};

struct GramLoops {
    std::size_t width;  // columns of a panel
    std::size_t group;  // panels of a column group, the unit of work of sum_outer

    // Packs rows index[0..rows) of X (row length d) as scale * [x - origin, -1]; scale may be null (1).
    void (*pack_f64)(const double* X, std::size_t d, const std::uint32_t* index, const double* origin,
                     const double* scale, PackedBlock block);
    void (*pack_f32)(const float* X, std::size_t d, const std::uint32_t* index, const double* origin,
                     const double* scale, PackedBlock block);

    // Largest |x|; NaN if there is one, else infinity if there is one.
    double (*largest_f64)(const double* values, std::size_t n);
    double (*largest_f32)(const float* values, std::size_t n);

    // gram += sign * sum of outer products, for the columns of one group and those rows of some panels that lie
    // on or below the diagonal. gram is size x size, row-major; above the diagonal nothing is ever touched.
    void (*sum_outer)(PackedBlock block, std::size_t first_panel, PanelRange rows, double sign, double* gram,
                      std::size_t size);
};

}  // namespace steelyard
