#include "trees/row_experts.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include "common/threads.hpp"
#include "proximal/scores.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kScoredRows = 256;      // the mapped rows of a block stay in the cache
constexpr std::size_t kMinRowsPerBlock = 50;  // smaller blocks use the vector loops badly
constexpr std::size_t kBlocksPerThread = 2;   // a thread that starts late leaves its blocks to the others

}  // namespace

void RowExperts::score(Rows<double> rows, double* ranks_out, double* scores, std::size_t n_experts,
                       unsigned n_threads) const {
    const std::size_t n_parts = n_threads > 1 ? n_threads * kBlocksPerThread : 1;
    const std::size_t size = std::clamp((rows.n_rows + n_parts - 1) / n_parts, kMinRowsPerBlock, kScoredRows);
    const std::size_t n_blocks = (rows.n_rows + size - 1) / size;
    std::vector<std::exception_ptr> errors(n_blocks);
    parallel_for(n_blocks, n_threads, [&](std::size_t block) {
        const std::size_t begin = block * size, n = std::min(size, rows.n_rows - begin);
        try {
            score_block({rows.data + begin * n_features, n, n_features},
                        ranks ? ranks_out + begin * n_features : nullptr, scores + begin * n_experts, n_experts);
        } catch (...) {
            errors[block] = std::current_exception();
        }
    });
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

void RowExperts::score_block(Rows<double> rows, double* ranks_out, double* scores, std::size_t n_experts) const {
    const std::size_t n = rows.n_rows;
    std::vector<double> mapped(map ? n * map->n_outputs() : 0), column(n);
    const auto write = [&](std::size_t expert) {
        for (std::size_t i = 0; i < n; ++i) scores[i * n_experts + expert] = column[i];
    };
    if (ranks) apply_pieces(rows, *ranks, ranks_out);
    if (map) map_rows(*map, {ranks_out, n, n_features}, mapped.data(), 1);
    for (const Plane& plane : planes) {
        const double* values = plane.is_mapped ? mapped.data() : rows.data;
        linear_scores<double>({values, n, plane.normal.size()}, {plane.normal, {&plane.intercept, 1}}, column.data(),
                              1);
        write(plane.expert);
    }
    for (const Machine& machine : machines) {
        kernel_sums(machine.spec, Rows<double>{ranks_out, n, n_features}, *machine.vectors, machine.coef, column.data(),
                    1);
        for (double& score : column) score += machine.intercept;
        write(machine.expert);
    }
    for (const Votes& expert : votes) {
        neighbor_scores(expert.neighbors, {ranks_out, n, n_features}, column.data());
        write(expert.expert);
    }
    for (const Trees& expert : trees) {
        expert.scorer->score(rows, column.data());
        write(expert.expert);
    }
}

}  // namespace steelyard
