// RowIndex: hash index from row hashes to row numbers, with lookups in constant time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace steelyard {

// Open-addressing hash table of doubly linked chains of rows with equal hashes.
// Removing or renumbering a row does not visit the rest of its chain, so chains of thousands of rows are not slower.
class RowIndex {
  public:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    // first() and next() iterate over the chain of rows with a given hash and return kNone at the end.
    std::uint32_t first(std::uint64_t hash) const { return table_.empty() ? kNone : table_[place_of(hash)]; }
    std::uint32_t next(std::uint32_t row) const { return links_[row].next; }

    void insert(std::uint32_t row, std::uint64_t hash) {
        if (2 * (n_chains_ + 1) > table_.size()) grow();
        if (links_.size() <= row) links_.resize(std::size_t{row} + 1);
        const std::size_t place = place_of(hash);
        const std::uint32_t old = table_[place];
        links_[row] = {hash, kNone, old};
        if (old == kNone)
            ++n_chains_;
        else
            links_[old].previous = row;
        table_[place] = row;
    }

    void erase(std::uint32_t row) {
        const Link link = links_[row];
        if (link.next != kNone) links_[link.next].previous = link.previous;
        if (link.previous != kNone)
            links_[link.previous].next = link.next;
        else if (link.next != kNone)
            table_[place_of(link.hash)] = link.next;
        else
            close_gap(place_of(link.hash));
    }

    void renumber(std::uint32_t row, std::uint32_t number) {
        const Link link = links_[row];
        links_[number] = link;
        if (link.next != kNone) links_[link.next].previous = number;
        if (link.previous != kNone)
            links_[link.previous].next = number;
        else
            table_[place_of(link.hash)] = number;
    }

    // Returns all rows 0 .. n - 1 in an order that recreates the same chains when the rows are inserted.
    std::vector<std::uint32_t> order(std::uint32_t n) const {
        std::vector<std::uint32_t> rows;
        for (std::uint32_t last = 0; last < n; ++last)
            if (links_[last].next == kNone)
                for (std::uint32_t row = last; row != kNone; row = links_[row].previous) rows.push_back(row);
        return rows;
    }

  private:
    struct Link {
        std::uint64_t hash;
        std::uint32_t previous, next;
    };

    std::size_t home_of(std::uint64_t hash) const { return static_cast<std::size_t>(hash) & (table_.size() - 1); }
    std::size_t after(std::size_t place) const { return (place + 1) & (table_.size() - 1); }

    // Returns the table position of the chain of a hash, or the position where the chain would be inserted.
    std::size_t place_of(std::uint64_t hash) const {
        std::size_t place = home_of(hash);
        while (table_[place] != kNone && links_[table_[place]].hash != hash) place = after(place);
        return place;
    }

    // Backward-shift deletion: entries that were displaced past the freed table position move back.
    void close_gap(std::size_t gap) {
        --n_chains_;
        table_[gap] = kNone;
        for (std::size_t place = after(gap); table_[place] != kNone; place = after(place)) {
            const std::uint32_t row = table_[place];
            table_[place] = kNone;
            table_[place_of(links_[row].hash)] = row;
        }
    }

    void grow() {
        std::vector<std::uint32_t> old(std::max<std::size_t>(64, 2 * table_.size()), kNone);
        old.swap(table_);
        for (const std::uint32_t row : old)
            if (row != kNone) table_[place_of(links_[row].hash)] = row;
    }

    std::vector<std::uint32_t> table_;  // the table size is a power of two, and at most half of the entries are used
    std::vector<Link> links_;           // one link per row
    std::size_t n_chains_ = 0;
};

}  // namespace steelyard
