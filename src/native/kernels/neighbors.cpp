#include "kernels/neighbors.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace steelyard {

namespace {

constexpr std::size_t kBlockRows = 64;  // the similarities of a block of rows stay in the cache

struct Neighbor {
    double similarity;
    std::size_t vector;
};

// Writes the most similar vectors to `nearest`, most similar first.
void find_nearest(const double* similarity, std::size_t n_vectors, std::vector<Neighbor>& nearest) {
    std::size_t n = 0;
    for (std::size_t j = 0; j < n_vectors; ++j) {
        if (n == nearest.size() && similarity[j] < nearest[n - 1].similarity) continue;
        n = std::min(n + 1, nearest.size());
        std::size_t place = n - 1;
        for (; place > 0 && nearest[place - 1].similarity <= similarity[j]; --place)
            nearest[place] = nearest[place - 1];
        nearest[place] = {similarity[j], j};
    }
}

}  // namespace

void neighbor_scores(const Neighbors& neighbors, Rows<double> X, double* out) {
    const std::size_t n_vectors = neighbors.vectors.n_rows, n_classes = neighbors.n_classes;
    std::vector<double> similarity(std::min(kBlockRows, X.n_rows) * n_vectors), votes(n_classes);
    std::vector<Neighbor> nearest(std::min(neighbors.n_neighbors, n_vectors));
    for (std::size_t begin = 0; begin < X.n_rows; begin += kBlockRows) {
        const std::size_t n = std::min(kBlockRows, X.n_rows - begin);
        kernel_block<double>(neighbors.spec, {X.data + begin * X.n_features, n, X.n_features}, neighbors.vectors,
                             similarity.data(), n_vectors, 1);
        for (std::size_t i = 0; i < n; ++i, out += neighbors.n_scores()) {
            find_nearest(similarity.data() + i * n_vectors, n_vectors, nearest);
            std::ranges::fill(votes, 0.0);
            for (const Neighbor& one : nearest)
                votes[static_cast<std::size_t>(neighbors.places[one.vector])] += one.similarity;
            for (double& vote : votes) vote = std::log(0.5 / static_cast<double>(n_classes) + vote);
            if (n_classes == 2)
                *out = votes[1] - votes[0];
            else
                std::ranges::copy(votes, out);
        }
    }
}

}  // namespace steelyard
