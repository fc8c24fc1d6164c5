// Scores of several binary experts, computed in one call instead of one call per expert.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kernels/feature_maps.hpp"
#include "kernels/kernels.hpp"
#include "kernels/neighbors.hpp"
#include "trees/piecewise.hpp"
#include "trees/tree_ensemble.hpp"

namespace steelyard {

// Binary experts of an ensemble. The caller owns all referenced arrays and objects, which must outlive this object.
struct RowExperts {
    struct Plane {
        std::size_t expert;
        bool is_mapped;  // true if the plane is applied to the mapped ranks, false if it is applied to the row itself
        std::span<const double> normal;
        double intercept;
    };
    struct Machine {  // kernel expansion on the rank-transformed row
        std::size_t expert;
        KernelSpec spec;
        const PackedRows<double>* vectors;
        const double* coef;
        double intercept;
    };
    struct Votes {  // votes of the nearest rank-transformed rows
        std::size_t expert;
        Neighbors neighbors;
    };
    struct Trees {
        std::size_t expert;
        const TreeScorer* scorer;
    };

    std::size_t n_features;
    std::optional<ColumnPieces> ranks;
    std::optional<FeatureMap> map;  // feature map that is applied to the ranks
    std::vector<Plane> planes;
    std::vector<Machine> machines;
    std::vector<Votes> votes;
    std::vector<Trees> trees;

    // Writes the scores of all experts to `scores`, one row of `n_experts` values per input row.
    // If `ranks` is set, writes the ranks of the rows to `ranks_out`.
    // Values of experts that were not added do not change.
    void score(Rows<double> rows, double* ranks_out, double* scores, std::size_t n_experts,
               unsigned n_threads = 1) const;

  private:
    void score_block(Rows<double> rows, double* ranks_out, double* scores, std::size_t n_experts) const;
};

}  // namespace steelyard
