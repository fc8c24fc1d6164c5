#include "trees/tree_ensemble.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/compiler.hpp"
#include "common/threads.hpp"

// Compiled without floating-point contraction: a fused multiply-add rounds differently, and not every CPU has one.

namespace steelyard {

namespace {

constexpr std::uint32_t kMissingLeft = 1, kCategory = 2;
// Number of rows per block. All trees score a block while it is in the cache.
constexpr std::size_t kBlockRows = 64;
constexpr std::size_t kTaskRows = 1024;  // rows per task of a thread

bool are_sets_sound(const TreeEnsemble& trees) {
    if (trees.set_begin.empty() || trees.set_begin.front() != 0 ||
        trees.set_begin.back() != static_cast<std::int64_t>(trees.set_words.size()))
        return false;
    return std::ranges::is_sorted(trees.set_begin);
}

bool is_in_set(const TreeEnsemble& trees, std::size_t set, double value) {
    const std::int64_t begin = trees.set_begin[set], n_words = trees.set_begin[set + 1] - begin;
    if (!(value >= 0.0 && value < 64.0 * static_cast<double>(n_words))) return false;
    const auto code = static_cast<std::int64_t>(value);
    return (trees.set_words[static_cast<std::size_t>(begin + code / 64)] >> (code % 64) & 1) != 0;
}

// One feature on a path from the root, as in algorithm 2 of Lundberg, Erion and Lee (2018).
struct PathElement {
    std::int32_t feature;
    double zero_fraction;  // share of the training rows that follow the path if the feature is unknown
    double one_fraction;   // 1 if the explained row follows the path, else 0
    double weight;
};

void extend_path(PathElement* path, std::int32_t depth, double zero, double one, std::int32_t feature) {
    path[depth] = {feature, zero, one, depth == 0 ? 1.0 : 0.0};
    for (std::int32_t i = depth - 1; i >= 0; --i) {
        path[i + 1].weight += one * path[i].weight * (i + 1) / (depth + 1);
        path[i].weight = zero * path[i].weight * (depth - i) / (depth + 1);
    }
}

// Calls visit(i, weight) with the weights of the path without element `removed`.
template <class Visit>
void unwind(const PathElement* path, std::int32_t depth, std::int32_t removed, Visit&& visit) {
    const double one = path[removed].one_fraction, zero = path[removed].zero_fraction;
    double next = path[depth].weight;
    for (std::int32_t i = depth - 1; i >= 0; --i) {
        const double old = path[i].weight;
        const double weight =
            one != 0.0 ? next * (depth + 1) / ((i + 1) * one) : old * (depth + 1) / (zero * (depth - i));
        next = old - weight * zero * (depth - i) / (depth + 1);
        visit(i, weight);
    }
}

void remove_element(PathElement* path, std::int32_t depth, std::int32_t removed) {
    unwind(path, depth, removed, [&](std::int32_t i, double weight) { path[i].weight = weight; });
    for (std::int32_t i = removed; i < depth; ++i) {
        path[i].feature = path[i + 1].feature;
        path[i].zero_fraction = path[i + 1].zero_fraction;
        path[i].one_fraction = path[i + 1].one_fraction;
    }
}

}  // namespace

bool is_sound(const TreeEnsemble& trees, std::size_t n_features) {
    const std::size_t n = trees.feature.size(), n_outputs = trees.n_outputs();
    if (n == 0 || n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) || n_outputs == 0)
        return false;
    if (trees.left.size() != n || trees.value.size() != n || trees.missing_left.size() != n ||
        trees.category_set.size() != n || (!trees.rows.empty() && trees.rows.size() != n))
        return false;
    if (trees.roots.empty() || trees.roots.size() % n_outputs != 0 || !are_sets_sound(trees)) return false;
    std::vector<bool> is_used(n, false);  // used to check that every node has exactly one parent or is a root
    const auto use = [&](std::int64_t node) {
        if (node < 0 || node >= static_cast<std::int64_t>(n) || is_used[static_cast<std::size_t>(node)]) return false;
        is_used[static_cast<std::size_t>(node)] = true;
        return true;
    };
    for (const std::int32_t root : trees.roots)
        if (!use(root)) return false;
    for (const double base : trees.base_score)
        if (!std::isfinite(base)) return false;
    for (std::size_t i = 0; i < n; ++i) {
        const std::int32_t feature = trees.feature[i], set = trees.category_set[i];
        if (feature < 0) {
            if (!std::isfinite(trees.value[i])) return false;
            continue;
        }
        if (static_cast<std::size_t>(feature) >= n_features || feature >= (1 << 29) || std::isnan(trees.value[i]))
            return false;
        if (set >= static_cast<std::int64_t>(trees.set_begin.size()) - 1) return false;
        // Children must follow their parent in the arrays, so that every path ends.
        const std::int64_t left = trees.left[i];
        if (left <= static_cast<std::int64_t>(i) || !use(left) || !use(left + 1)) return false;
        if (trees.rows.empty()) continue;
        const std::int64_t n_left = trees.rows[static_cast<std::size_t>(left)],
                           n_right = trees.rows[static_cast<std::size_t>(left) + 1];
        if (n_left < 1 || n_right < 1 || n_left + n_right != trees.rows[i]) return false;
    }
    return true;
}

TreeScorer::TreeScorer(TreeEnsemble trees) : trees_(std::move(trees)) {
    const std::size_t n = trees_.feature.size();
    std::vector<std::size_t> tree_of(n, 0);
    std::vector<std::int32_t> depth(n, 0);
    for (const std::int32_t root : trees_.roots) {
        tree_of[static_cast<std::size_t>(root)] = roots_.size();
        roots_.push_back({root, 0, false});
    }
    for (std::size_t i = 0; i < n; ++i) {
        const std::int32_t feature = trees_.feature[i], set = trees_.category_set[i];
        if (feature < 0) {
            nodes_.push_back({std::numeric_limits<double>::infinity(), kMissingLeft, static_cast<std::int32_t>(i)});
            continue;
        }
        const std::uint32_t flags = set >= 0 ? kCategory : trees_.missing_left[i] != 0 ? kMissingLeft : 0;
        nodes_.push_back({set >= 0 ? static_cast<double>(set) : trees_.value[i],
                          static_cast<std::uint32_t>(feature) << 2 | flags, trees_.left[i]});
        Tree& tree = roots_[tree_of[i]];
        tree.has_categories |= set >= 0;
        tree.depth = std::max(tree.depth, depth[i] + 1);
        max_depth_ = std::max(max_depth_, tree.depth);
        for (const std::size_t side : {0, 1}) {
            const std::size_t child = static_cast<std::size_t>(trees_.left[i]) + side;
            tree_of[child] = tree_of[i];
            depth[child] = depth[i] + 1;
        }
    }
}

// Returns the child of a numeric split for a given value, without a branch.
template <class Node>
static std::int32_t numeric_child(const Node& node, double value) {
    const bool is_missing_right = (value != value) & ((node.feature_bits & kMissingLeft) == 0);
    return node.left + ((value > node.threshold) | is_missing_right);
}

std::int32_t TreeScorer::child(std::int32_t i, const double* row) const {
    const Node& node = nodes_[static_cast<std::size_t>(i)];
    const double value = row[node.feature_bits >> 2];
    if ((node.feature_bits & kCategory) != 0)
        return node.left + !is_in_set(trees_, static_cast<std::size_t>(node.threshold), value);
    return numeric_child(node, value);
}

// Moves all lanes from their nodes to the leaves, one level at a time.
STEELYARD_ALWAYS_INLINE inline void TreeScorer::walk(std::array<std::int32_t, kLanes>& at,
                                                     const std::array<const double*, kLanes>& rows, std::int32_t depth,
                                                     bool has_categories) const {
    for (std::int32_t d = 0; d < depth; ++d) {
        if (has_categories) {
            for (std::size_t k = 0; k < kLanes; ++k) at[k] = child(at[k], rows[k]);
            continue;
        }
        for (std::size_t k = 0; k < kLanes; ++k) {
            const Node& node = nodes_[static_cast<std::size_t>(at[k])];
            at[k] = numeric_child(node, rows[k][node.feature_bits >> 2]);
        }
    }
}

// Scores one row, several trees at a time.
void TreeScorer::score_row(const double* row, double* out) const {
    const std::size_t n_trees = trees_.n_trees();
    std::array<const double*, kLanes> rows;
    rows.fill(row);
    for (std::size_t output = 0; output < trees_.n_outputs(); ++output) {
        const Tree* trees = roots_.data() + output * n_trees;
        double sum = trees_.base_score[output];
        for (std::size_t t = 0; t < n_trees; t += kLanes) {
            std::array<std::int32_t, kLanes> at;
            Tree group{0, 0, false};
            for (std::size_t k = 0; k < kLanes; ++k) {
                // Lanes beyond the last tree repeat the last tree.
                const Tree& tree = trees[std::min(t + k, n_trees - 1)];
                at[k] = tree.root;
                group.depth = std::max(group.depth, tree.depth);
                group.has_categories |= tree.has_categories;
            }
            walk(at, rows, group.depth, group.has_categories);
            for (std::size_t k = 0; k < std::min(kLanes, n_trees - t); ++k)
                sum += trees_.value[static_cast<std::size_t>(at[k])];
        }
        out[output] = sum;
    }
}

// Scores at most kBlockRows rows, several rows at a time.
void TreeScorer::score_block(const double* X, std::size_t n_rows, std::size_t n_features, double* out) const {
    static_assert(kBlockRows % kLanes == 0);
    const std::size_t n_outputs = trees_.n_outputs(), n_trees = trees_.n_trees();
    for (std::size_t output = 0; output < n_outputs; ++output) {
        std::array<double, kBlockRows> sums;
        sums.fill(trees_.base_score[output]);
        for (std::size_t t = 0; t < n_trees; ++t) {
            const Tree& tree = roots_[output * n_trees + t];
            for (std::size_t r = 0; r < n_rows; r += kLanes) {
                std::array<const double*, kLanes> rows;
                for (std::size_t k = 0; k < kLanes; ++k)
                    // Lanes beyond the last row repeat the last row.
                    rows[k] = X + std::min(r + k, n_rows - 1) * n_features;
                std::array<std::int32_t, kLanes> at;
                at.fill(tree.root);
                walk(at, rows, tree.depth, tree.has_categories);
                for (std::size_t k = 0; k < kLanes; ++k) sums[r + k] += trees_.value[static_cast<std::size_t>(at[k])];
            }
        }
        for (std::size_t r = 0; r < n_rows; ++r) out[r * n_outputs + output] = sums[r];
    }
}

void TreeScorer::score(Rows<double> X, double* out, unsigned n_threads) const {
    const std::size_t n_outputs = trees_.n_outputs();
    if (X.n_rows < kLanes / 2) {
        for (std::size_t r = 0; r < X.n_rows; ++r) score_row(X.data + r * X.n_features, out + r * n_outputs);
        return;
    }
    parallel_for((X.n_rows + kTaskRows - 1) / kTaskRows, n_threads, [&](std::size_t task) {
        const std::size_t end = std::min(X.n_rows, (task + 1) * kTaskRows);
        for (std::size_t r = task * kTaskRows; r < end; r += kBlockRows)
            score_block(X.data + r * X.n_features, std::min(kBlockRows, end - r), X.n_features, out + r * n_outputs);
    });
}

namespace {

// Computes SHAP values of one row and one tree.
class Contributions {
  public:
    Contributions(const TreeEnsemble& trees, std::int32_t max_depth)
        : trees_(trees), stride_(static_cast<std::size_t>(max_depth) + 2), paths_(stride_ * stride_) {}

    // child(node) returns the child of a split to which the explained row goes.
    template <class Child>
    void add(std::int32_t root, const Child& child, double* out) {
        visit(root, 0, 0, 1.0, 1.0, -1, child, out);
    }

  private:
    // `level` selects the buffer of this node's path. `depth` is the number of path elements before this node.
    template <class Child>
    void visit(std::int32_t node, std::size_t level, std::int32_t depth, double zero, double one, std::int32_t feature,
               const Child& child, double* out) {
        PathElement* path = paths_.data() + level * stride_;
        if (level > 0) std::copy_n(path - stride_, depth, path);
        extend_path(path, depth, zero, one, feature);
        const auto i = static_cast<std::size_t>(node);
        if (trees_.feature[i] < 0) {
            for (std::int32_t e = 1; e <= depth; ++e) {
                double weight = 0.0;
                unwind(path, depth, e, [&](std::int32_t, double w) { weight += w; });
                out[path[e].feature] += weight * (path[e].one_fraction - path[e].zero_fraction) * trees_.value[i];
            }
            return;
        }
        const std::int32_t here = trees_.feature[i], taken = child(node), left = trees_.left[i];
        double zero_before = 1.0, one_before = 1.0;
        for (std::int32_t e = 1; e <= depth; ++e) {
            if (path[e].feature != here) continue;
            zero_before = path[e].zero_fraction;
            one_before = path[e].one_fraction;
            remove_element(path, depth--, e);
            break;
        }
        for (const std::int32_t next : {left, left + 1}) {
            const double share = static_cast<double>(trees_.rows[static_cast<std::size_t>(next)]) / trees_.rows[i];
            visit(next, level + 1, depth + 1, zero_before * share, next == taken ? one_before : 0.0, here, child, out);
        }
    }

    const TreeEnsemble& trees_;
    std::size_t stride_;
    std::vector<PathElement> paths_;
};

// Returns, for every node, the mean score of the training rows that reach it.
std::vector<double> expected_values(const TreeEnsemble& trees) {
    std::vector<double> expected(trees.value);
    for (std::size_t i = trees.feature.size(); i-- > 0;) {
        if (trees.feature[i] < 0) continue;
        const auto left = static_cast<std::size_t>(trees.left[i]);
        expected[i] = (expected[left] * trees.rows[left] + expected[left + 1] * trees.rows[left + 1]) / trees.rows[i];
    }
    return expected;
}

}  // namespace

void TreeScorer::contributions(Rows<double> X, double* out, unsigned n_threads) const {
    const std::size_t n_outputs = trees_.n_outputs(), n_trees = trees_.n_trees(), width = X.n_features + 1;
    const std::vector<double> expected = expected_values(trees_);
    std::vector<double> base(trees_.base_score);
    for (std::size_t t = 0; t < roots_.size(); ++t)
        base[t / n_trees] += expected[static_cast<std::size_t>(roots_[t].root)];
    const std::size_t n_tasks = std::max(1u, n_threads);
    std::vector<Contributions> workers(n_tasks, Contributions(trees_, max_depth_));
    parallel_for(n_tasks, n_threads, [&](std::size_t task) {
        for (std::size_t r = X.n_rows * task / n_tasks; r < X.n_rows * (task + 1) / n_tasks; ++r) {
            const double* row = X.data + r * X.n_features;
            for (std::size_t output = 0; output < n_outputs; ++output) {
                double* values = out + (r * n_outputs + output) * width;
                std::fill_n(values, width, 0.0);
                for (std::size_t t = output * n_trees; t < (output + 1) * n_trees; ++t)
                    workers[task].add(roots_[t].root, [&](std::int32_t node) { return child(node, row); }, values);
                values[X.n_features] = base[output];
            }
        }
    });
}

}  // namespace steelyard
