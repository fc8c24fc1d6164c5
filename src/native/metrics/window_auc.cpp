#include "metrics/window_auc.hpp"

#include <algorithm>
#include <numeric>

namespace steelyard {

namespace {

std::int64_t sum_first(const std::uint32_t* counts, std::uint32_t n) {
    return std::accumulate(counts, counts + n, std::uint32_t{0});
}

}  // namespace

std::uint32_t RankTree::new_node() {
    if (free_.empty()) {
        nodes_.emplace_back();
        return static_cast<std::uint32_t>(nodes_.size() - 1);
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    nodes_[id].size = 0;
    return id;
}

// Counts the keys below `score`.
// Counting is faster than binary search: the loop is vectorized and has no mispredicted branches.
std::uint32_t RankTree::first_not_below(const Node& node, double score) {
    std::uint32_t n_below = 0;
    for (std::uint32_t e = 0; e < node.size; ++e) n_below += node.key[e] < score;
    return n_below;
}

void RankTree::open_entry(Node& node, std::uint32_t entry) {
    std::copy_backward(node.key + entry, node.key + node.size, node.key + node.size + 1);
    std::copy_backward(node.child + entry, node.child + node.size, node.child + node.size + 1);
    for (auto& count : node.count) {
        std::copy_backward(count + entry, count + node.size, count + node.size + 1);
        count[entry] = 0;
    }
    ++node.size;
}

void RankTree::close_entry(Node& node, std::uint32_t entry) {
    std::copy(node.key + entry + 1, node.key + node.size, node.key + entry);
    std::copy(node.child + entry + 1, node.child + node.size, node.child + entry);
    for (auto& count : node.count) std::copy(count + entry + 1, count + node.size, count + entry);
    --node.size;
}

std::int64_t RankTree::doubled_wins_of(const Rank& rank, bool positive) const {
    const std::int64_t won = positive ? rank.below : totals_[1] - rank.below - rank.equal;
    return 2 * won + rank.equal;
}

void RankTree::insert(double score, bool positive) {
    if (nodes_.empty()) root_ = new_node();
    Rank rank;
    add(root_, height_, score, positive, rank);
    if (nodes_[root_].size == kFanout) grow_root();
    doubled_wins_ += doubled_wins_of(rank, positive);
    ++totals_[positive];
}

void RankTree::erase(double score, bool positive) {
    Rank rank;
    remove(root_, height_, score, positive, rank);
    while (height_ > 0 && nodes_[root_].size == 1) {
        free_.push_back(root_);
        root_ = nodes_[root_].child[0];
        --height_;
    }
    doubled_wins_ -= doubled_wins_of(rank, positive);
    --totals_[positive];
}

// Invariant: before an insertion, a node has space for one more entry.
// If an insertion fills a node, the parent splits the node.
void RankTree::add(std::uint32_t id, unsigned level, double score, bool positive, Rank& rank) {
    Node& node = nodes_[id];
    std::uint32_t entry = first_not_below(node, score);
    if (level == 0) {
        if (entry == node.size || node.key[entry] != score) {
            open_entry(node, entry);
            node.key[entry] = score;
        }
        rank.equal = node.count[!positive][entry];
    } else if (entry == node.size) {
        node.key[--entry] = score;  // a new maximum raises the upper bound of the last child
    }
    rank.below += sum_first(node.count[!positive], entry);
    ++node.count[positive][entry];
    if (level == 0) return;
    const std::uint32_t child = node.child[entry];
    add(child, level - 1, score, positive, rank);  // may reallocate the nodes, so `node` is invalid after this call
    if (nodes_[child].size == kFanout) split_child(id, entry);
}

void RankTree::remove(std::uint32_t id, unsigned level, double score, bool positive, Rank& rank) {
    Node& node = nodes_[id];
    const std::uint32_t entry = first_not_below(node, score);
    rank.below += sum_first(node.count[!positive], entry);
    --node.count[positive][entry];
    if (level > 0) {
        remove(node.child[entry], level - 1, score, positive, rank);
        tidy_child(id, entry);
        return;
    }
    rank.equal = node.count[!positive][entry];
    if (node.count[0][entry] + node.count[1][entry] == 0) close_entry(node, entry);
}

void RankTree::split_child(std::uint32_t parent_id, std::uint32_t entry) {
    const std::uint32_t right_id = new_node();
    Node& parent = nodes_[parent_id];
    Node& left = nodes_[parent.child[entry]];
    Node& right = nodes_[right_id];
    const std::uint32_t half = left.size / 2;
    right.size = left.size - half;
    std::copy(left.key + half, left.key + left.size, right.key);
    std::copy(left.child + half, left.child + left.size, right.child);
    for (int side : {0, 1}) std::copy(left.count[side] + half, left.count[side] + left.size, right.count[side]);
    left.size = half;

    open_entry(parent, entry + 1);
    parent.key[entry + 1] = parent.key[entry];
    parent.key[entry] = left.key[half - 1];
    parent.child[entry + 1] = right_id;
    for (int side : {0, 1}) {
        const auto moved = static_cast<std::uint32_t>(sum_first(right.count[side], right.size));
        parent.count[side][entry + 1] = moved;
        parent.count[side][entry] -= moved;
    }
}

void RankTree::grow_root() {
    const std::uint32_t id = new_node();
    Node& top = nodes_[id];
    const Node& old = nodes_[root_];
    top.size = 1;
    top.key[0] = old.key[old.size - 1];
    top.child[0] = root_;
    for (int side : {0, 1}) top.count[side][0] = static_cast<std::uint32_t>(sum_first(old.count[side], old.size));
    root_ = id;
    ++height_;
    split_child(root_, 0);
}

// Merges neighbouring nodes whose entries fit into half a node.
// Nodes are a quarter full on average, so the height is logarithmic in the number of rows.
// A merged node has space for many entries before its next split.
void RankTree::tidy_child(std::uint32_t parent_id, std::uint32_t entry) {
    Node& parent = nodes_[parent_id];
    if (nodes_[parent.child[entry]].size == 0) {
        free_.push_back(parent.child[entry]);
        close_entry(parent, entry);
        return;
    }
    if (merge_with_next(parent, entry)) return;
    if (entry > 0) merge_with_next(parent, entry - 1);
}

bool RankTree::merge_with_next(Node& parent, std::uint32_t entry) {
    if (entry + 1 >= parent.size) return false;
    Node& left = nodes_[parent.child[entry]];
    const Node& right = nodes_[parent.child[entry + 1]];
    if (left.size + right.size > kFanout / 2) return false;
    std::copy(right.key, right.key + right.size, left.key + left.size);
    std::copy(right.child, right.child + right.size, left.child + left.size);
    for (int side : {0, 1}) {
        std::copy(right.count[side], right.count[side] + right.size, left.count[side] + left.size);
        parent.count[side][entry] += parent.count[side][entry + 1];
    }
    left.size += right.size;
    parent.key[entry] = parent.key[entry + 1];
    free_.push_back(parent.child[entry + 1]);
    close_entry(parent, entry + 1);
    return true;
}

AucWindow::AucWindow(std::size_t window, std::size_t n_columns)
    : window_(window),
      n_columns_(n_columns),
      trees_(n_columns == 1 ? 1 : n_columns * n_columns),
      counts_(std::max<std::size_t>(n_columns, 2), 0) {}

void AucWindow::clear() { *this = AucWindow(window_, n_columns_); }

void AucWindow::apply(Change change, std::int32_t code, const double* scores) {
    const auto move = [change](RankTree& tree, double score, bool positive) {
        if (change == Change::insert)
            tree.insert(score, positive);
        else
            tree.erase(score, positive);
    };
    const auto own = static_cast<std::size_t>(code);
    counts_[own] += change == Change::insert ? 1 : -1;
    if (n_columns_ == 1) return move(trees_[0], scores[0], code == 1);
    for (std::size_t other = 0; other < n_columns_; ++other) {
        if (other == own) continue;
        move(trees_[own * n_columns_ + other], scores[own], true);
        move(trees_[other * n_columns_ + own], scores[other], false);
    }
}

void AucWindow::push_row(std::int32_t code, const double* scores) {
    if (size() < window_) {
        codes_.push_back(code);
        scores_.insert(scores_.end(), scores, scores + n_columns_);
    } else {
        double* oldest = scores_.data() + head_ * n_columns_;
        apply(Change::erase, codes_[head_], oldest);
        codes_[head_] = code;
        std::copy(scores, scores + n_columns_, oldest);
        head_ = (head_ + 1) % window_;
    }
    apply(Change::insert, code, scores);
}

void AucWindow::push(std::span<const std::int32_t> codes, const double* scores) {
    std::size_t first = 0;
    if (codes.size() >= window_) {  // all older rows leave the window
        clear();
        first = codes.size() - window_;
    }
    for (std::size_t r = first; r < codes.size(); ++r) push_row(codes[r], scores + r * n_columns_);
}

void AucWindow::doubled_wins(std::int64_t* wins) const {
    for (const RankTree& tree : trees_) *wins++ = tree.doubled_wins();
}

void AucWindow::content(std::int32_t* codes, double* scores) const {
    std::rotate_copy(codes_.begin(), codes_.begin() + static_cast<std::ptrdiff_t>(head_), codes_.end(), codes);
    std::rotate_copy(scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(head_ * n_columns_), scores_.end(),
                     scores);
}

}  // namespace steelyard
