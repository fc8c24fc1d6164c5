// What several experts of one plane say about a single row, in one go: a row costs less than many small calls.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kernels/feature_maps.hpp"
#include "kernels/kernels.hpp"
#include "trees/piecewise.hpp"
#include "trees/tree_ensemble.hpp"

namespace steelyard {

// Whatever is pointed to belongs to others, who keep it.
struct RowExperts {
    struct Plane {
        std::size_t expert;
        bool is_mapped;  // over what the map makes of the ranks, else over the row as it is
        std::span<const double> normal;
        double intercept;
    };
    struct Machine {  // over the ranks
        std::size_t expert;
        KernelSpec spec;
        const PackedRows<double>* vectors;
        const double* coef;
        double intercept;
    };
    struct Trees {
        std::size_t expert;
        const TreeScorer* scorer;
    };

    std::size_t n_features;
    std::optional<ColumnPieces> ranks;
    std::optional<FeatureMap> map;  // of ranks
    std::vector<Plane> planes;
    std::vector<Machine> machines;
    std::vector<Trees> trees;

    // Writes the ranks of a row, if there are any, and the score of every expert that is here.
    void score(const double* row, double* ranks_out, double* scores) const;
};

}  // namespace steelyard
