#include "trees/row_experts.hpp"

#include "proximal/scores.hpp"

namespace steelyard {

void RowExperts::score(const double* row, double* ranks_out, double* scores) const {
    std::vector<double> mapped(map ? map->n_outputs() : 0);
    if (ranks) apply_pieces({row, 1, n_features}, *ranks, ranks_out);
    if (map) map_rows(*map, {ranks_out, 1, n_features}, mapped.data(), 1);
    for (const Plane& plane : planes) {
        const double* values = plane.is_mapped ? mapped.data() : row;
        linear_scores<double>({values, 1, plane.normal.size()}, {plane.normal, {&plane.intercept, 1}},
                              scores + plane.expert, 1);
    }
    for (const Machine& machine : machines) {
        double* score = scores + machine.expert;
        kernel_sums(machine.spec, Rows<double>{ranks_out, 1, n_features}, *machine.vectors, machine.coef, score, 1);
        *score += machine.intercept;
    }
    for (const Trees& expert : trees) expert.scorer->score({row, 1, n_features}, scores + expert.expert);
}

}  // namespace steelyard
