// Area under the ROC curve of a sliding window, updated row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace steelyard {

// Counted B-tree (order-statistic tree) of the scores of two classes.
// The tree maintains the number of correctly ordered pairs of rows.
//
// Every tree entry stores the number of rows of each class in its subtree.
// One descent from the root to a leaf therefore gives the rank of a score among the other class.
// A leaf entry is a distinct score. Tied rows share an entry.
// All counts are integers, so inserting and erasing a row leaves no rounding error.
class RankTree {
  public:
    void insert(double score, bool positive);
    // Removes a score that was inserted for this class.
    void erase(double score, bool positive);
    // Returns twice the number of (positive, negative) pairs in the right order, where a tie counts as half a pair.
    std::int64_t doubled_wins() const { return doubled_wins_; }

  private:
    static constexpr std::uint32_t kFanout = 32;
    struct Node {
        std::uint32_t size = 0;
        double key[kFanout];  // score in a leaf, or upper bound of all scores of the subtree in an inner node
        std::uint32_t count[2][kFanout];  // number of rows in the subtree of each entry, [negative, positive]
        std::uint32_t child[kFanout];     // index of the child node; unused in a leaf
    };
    // Number of rows of the other class with a lower score, and number with an equal score.
    struct Rank {
        std::int64_t below = 0, equal = 0;
    };

    std::uint32_t new_node();
    void add(std::uint32_t id, unsigned level, double score, bool positive, Rank& rank);
    void remove(std::uint32_t id, unsigned level, double score, bool positive, Rank& rank);
    void split_child(std::uint32_t parent, std::uint32_t entry);
    void grow_root();
    void tidy_child(std::uint32_t parent, std::uint32_t entry);
    bool merge_with_next(Node& parent, std::uint32_t entry);
    std::int64_t doubled_wins_of(const Rank& rank, bool positive) const;
    static std::uint32_t first_not_below(const Node& node, double score);
    static void open_entry(Node& node, std::uint32_t entry);
    static void close_entry(Node& node, std::uint32_t entry);

    std::vector<Node> nodes_;
    std::vector<std::uint32_t> free_;
    std::uint32_t root_ = 0;
    unsigned height_ = 0;  // number of levels above the leaves
    std::int64_t totals_[2] = {0, 0};
    std::int64_t doubled_wins_ = 0;
};

// The last `window` scored rows of a stream, with counts of correctly ordered pairs.
//
// With one column there are two classes, and the score is for class 1.
// With K >= 2 columns there are K classes, and column i is the score of class i.
// With K >= 2 columns, every ordered pair of classes (i, j) has its own tree of the scores in column i.
class AucWindow {
  public:
    AucWindow(std::size_t window, std::size_t n_columns);
    // codes[r] is in [0, n_classes). `scores` is row-major with shape (codes.size(), n_columns), without NaN.
    void push(std::span<const std::int32_t> codes, const double* scores);
    void clear();

    std::size_t window() const { return window_; }
    std::size_t n_columns() const { return n_columns_; }
    std::size_t n_classes() const { return counts_.size(); }
    std::size_t size() const { return codes_.size(); }
    std::span<const std::int64_t> counts() const { return counts_; }
    // For column i and class j, writes twice the number of pairs in which class i scores higher than class j.
    // With one column, wins[0] counts pairs of class 1 over class 0.
    void doubled_wins(std::int64_t* wins) const;
    // Copies all rows of the window, oldest row first.
    void content(std::int32_t* codes, double* scores) const;

  private:
    enum class Change { insert, erase };
    void apply(Change change, std::int32_t code, const double* scores);
    void push_row(std::int32_t code, const double* scores);

    std::size_t window_, n_columns_;
    std::vector<RankTree> trees_;
    std::vector<std::int64_t> counts_;
    std::vector<std::int32_t> codes_;  // ring buffer when the window is full, with the oldest row at head_
    std::vector<double> scores_;
    std::size_t head_ = 0;
};

}  // namespace steelyard
