#include "proximal/gram.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Number of rows per block. A panel of 8 doubles per row has 24 KiB and stays in the L1 cache.
// The panels of a column group stay in the L2 cache.
constexpr std::size_t kGramBlockRows = 384;
constexpr std::size_t kBandPanels = 32;
constexpr std::size_t kPanelPadding = 8;  // prevents panels from sharing cache sets

double largest_of(const GramLoops& loops, std::span<const double> values) {
    return loops.largest_f64(values.data(), values.size());
}
double largest_of(const GramLoops& loops, std::span<const float> values) {
    return loops.largest_f32(values.data(), values.size());
}

void scan(const GramLoops& loops, Rows<double> rows, const std::uint32_t* index, Steps steps, Scan found) {
    loops.scan_f64(rows.data, index, rows.n_rows, rows.n_features, steps, found);
}
void scan(const GramLoops& loops, Rows<float> rows, const std::uint32_t* index, Steps steps, Scan found) {
    loops.scan_f32(rows.data, index, rows.n_rows, rows.n_features, steps, found);
}

// Plan for splitting integers into digits and summing products of digits.
struct Plan {
    Digits digits;
    std::vector<std::uint32_t> high;  // features with a high digit; used if only some features have one
    std::size_t size;                 // number of columns of a block
    std::size_t n_blocks;
    std::size_t most_rows;  // maximum number of rows whose digit products are summed exactly

    explicit Plan(std::size_t d) : digits(Digits::one), size(d + 1), n_blocks(1), most_rows(8192) {}
    Plan(std::span<const double> largest, std::size_t d) : Plan(d) {
        for (std::uint32_t j = 0; j < d; ++j)
            if (largest[j] >= kOneDigit) high.push_back(j);
        if (high.empty()) return;
        // Three products of all features have a relative cost of 3.
        // One product of low digits and some high digits has the cost (1 + share of features with a high digit)^2.
        if (5 * high.size() < 3 * d) {
            digits = Digits::some;
            size += high.size();
            return;
        }
        digits = Digits::three;
        high.clear();
        n_blocks = 3;
        most_rows = 2048;
    }

    bool operator==(const Plan&) const = default;
    std::size_t n_sums() const { return n_blocks * size * size; }
};

bool pack(const GramLoops& loops, Rows<double> rows, const std::uint32_t* index, Steps steps, const Plan& plan,
          std::size_t block_stride, double* buffer, PackedBlock block) {
    return loops.pack_f64(rows.data, rows.n_features, index, steps, plan.digits, plan.high.data(), plan.high.size(),
                          block_stride, buffer, block);
}
bool pack(const GramLoops& loops, Rows<float> rows, const std::uint32_t* index, Steps steps, const Plan& plan,
          std::size_t block_stride, double* buffer, PackedBlock block) {
    return loops.pack_f32(rows.data, rows.n_features, index, steps, plan.digits, plan.high.data(), plan.high.size(),
                          block_stride, buffer, block);
}

// Unit of work of a thread: a part of the Gram matrix, given by a group of column panels and a band of row panels.
struct Task {
    std::size_t first_panel;
    PanelRange rows;
};

// Returns the tasks in band order, so that the row panels of a band stay in the L2 cache for all column groups.
std::vector<Task> tiles(std::size_t n_panels, std::size_t group) {
    std::vector<Task> tasks;
    for (std::size_t begin = 0; begin < n_panels; begin += kBandPanels) {
        const PanelRange band{begin, std::min(n_panels, begin + kBandPanels)};
        for (std::size_t first = 0; first < band.end; first += group) tasks.push_back({first, band});
    }
    return tasks;
}

// Returns the number of useful threads: the work of each thread must take much longer than one barrier.
unsigned useful_threads(unsigned wanted, std::size_t n_rows, std::size_t n_blocks, std::size_t size) {
    const double products = 0.5 * static_cast<double>(n_rows) * static_cast<double>(size * size);
    const double share = products / static_cast<double>(std::max<std::size_t>(n_blocks, 1));
    const double most = std::min({products / 4e6, share / 1e6, 64.0});
    return std::max(1u, std::min(wanted, static_cast<unsigned>(most)));
}

std::int64_t whole(double x) { return static_cast<std::int64_t>(x); }

// Adds one row of the sums of digit products in `scratch` to the multiprecision sums, then clears this row.
void drain_row(const Plan& plan, double* scratch, std::size_t row, std::int64_t weight, Triangle& sums) {
    const std::size_t size = sums.size(), width = plan.size;
    double* low = scratch + row * width;
    const std::size_t at = Triangle::place(row, 0);
    const auto add = [&](std::size_t column, int128 value) {
        if (sums.is_narrow())
            sums.narrow()[at + column] += weight * value;
        else
            sums.add_at(at + column, weight * value);
    };
    if (plan.digits == Digits::three) {
        double *high = low + size * size, *sum = low + 2 * size * size;
        for (std::size_t b = 0; b <= row; ++b) {
            const std::int64_t l = whole(low[b]), h = whole(high[b]), both = whole(sum[b]);
            add(b, l + (static_cast<int128>(both - h - l) << 21) + (static_cast<int128>(h) << 42));
        }
        std::fill_n(high, row + 1, 0.0);
        std::fill_n(sum, row + 1, 0.0);
    } else {
        for (std::size_t b = 0; b <= row; ++b) add(b, whole(low[b]));
    }
    std::fill_n(low, row + 1, 0.0);
}

// Adds the products with the high digit of feature plan.high[k] to the multiprecision sums.
// In `scratch`, the rows of high digits follow the rows of low digits.
void drain_high(const Plan& plan, double* scratch, std::size_t k, std::int64_t weight, Triangle& sums) {
    const std::size_t size = sums.size(), width = plan.size, feature = plan.high[k];
    double* row = scratch + (size + k) * width;
    for (std::size_t b = 0; b < size; ++b) {
        // On the diagonal, the product of high and low digit occurs twice in the square, so it is doubled.
        const int128 value = static_cast<int128>(whole(row[b])) << 21;
        sums.add_at(Triangle::place(std::max(feature, b), std::min(feature, b)),
                    weight * (b == feature ? 2 * value : value));
    }
    for (std::size_t m = 0; m <= k; ++m)
        sums.add_at(Triangle::place(feature, plan.high[m]), weight * (static_cast<int128>(whole(row[size + m])) << 42));
    std::fill_n(row, size + k + 1, 0.0);
}

// Clears the sums of digit products: one square matrix per block, of which only the lower triangle is used.
void clear(const Plan& plan, double* scratch) {
    for (std::size_t row = 0; row < plan.n_blocks * plan.size; ++row)
        std::fill_n(scratch + row * plan.size, row % plan.size + 1, 0.0);
}

// Returns log2 of an upper bound for the change of a sum when n rows with values up to `largest` are added.
double growth(std::size_t n, double largest, std::int64_t weight) {
    return std::log2(static_cast<double>(n)) + 2.0 * std::log2(std::max(1.0, largest)) + 2.0 +
           std::log2(std::max(1.0, std::fabs(static_cast<double>(weight))));
}

// Sums of products that several threads update under a lock.
struct SharedSums {
    Triangle* sums;
    std::mutex busy;
};

// Sums the digit products of rows that have not been scanned, block by block. Every thread has its own object.
template <class T>
class UnscannedRows {
  public:
    UnscannedRows(Rows<T> rows, Steps steps)
        : loops_(steelyard::loops().gram),
          rows_(rows),
          steps_(steps),
          plan_(rows.n_features),
          largest_(rows.n_features),
          remainder_(rows.n_features),
          far_(kGramBlockRows) {
        make_room();
    }

    // Sums the digit products of one block of rows, which belong to the class with these `sums`.
    // Rows with values above kTwoDigits are skipped and listed in beyond().
    // Returns false if a value needs more rounding than allowed.
    bool take(std::span<const std::uint32_t> index, SharedSums& sums) {
        if (sums_ != &sums || n_held_ + index.size() > plan_.most_rows) drain();
        sums_ = &sums;
        // Most blocks can use the plan of the previous block.
        if (plan_.digits != Digits::some && packed(index)) {
            sum(index.size());
            return true;
        }
        look(index);
        for (std::size_t j = 0; j < rows_.n_features; ++j)
            if (remainder_[j] > steps_.slack[j]) return false;
        near_.clear();
        for (std::size_t k = 0; k < index.size(); ++k) (far_[k] ? beyond_ : near_).push_back(index[k]);
        if (near_.size() < index.size()) look(near_);
        change_plan(Plan(largest_, rows_.n_features));
        if (!packed(near_)) return false;
        sum(near_.size());
        return true;
    }

    // Adds the sums of digit products of this thread to the multiprecision sums of the class.
    // drain() is called before the class or the plan changes, before doubles become inexact, and after the last block.
    void drain() {
        if (n_held_ == 0) return;
        const std::lock_guard<std::mutex> mine(sums_->busy);
        Triangle& sums = *sums_->sums;
        sums.reserve(growth(n_held_, plan_.digits == Digits::one ? kOneDigit : kTwoDigits, 1));
        for (std::size_t row = 0; row < sums.size(); ++row) drain_row(plan_, scratch_.get(), row, 1, sums);
        for (std::size_t k = 0; k < plan_.high.size(); ++k) drain_high(plan_, scratch_.get(), k, 1, sums);
        n_held_ = 0;
    }

    const std::vector<std::uint32_t>& beyond() const { return beyond_; }

  private:
    void look(std::span<const std::uint32_t> index) {
        std::fill(largest_.begin(), largest_.end(), 0.0);
        std::fill(remainder_.begin(), remainder_.end(), 0.0);
        scan(loops_, {rows_.data, index.size(), rows_.n_features}, index.data(), steps_,
             {largest_.data(), remainder_.data(), far_.data()});
    }

    void change_plan(Plan plan) {
        if (plan == plan_) return;
        drain();
        plan_ = std::move(plan);
        make_room();
    }

    void make_room() {
        const std::size_t n_panels = (plan_.size + loops_.width - 1) / loops_.width;
        tiles_ = tiles(n_panels, loops_.group);
        panel_stride_ = kGramBlockRows * loops_.width + kPanelPadding;
        block_stride_ = n_panels * panel_stride_;
        const std::size_t buffer_size = 3 * n_panels * loops_.width;
        room_ = aligned_buffer<double>(plan_.n_blocks * block_stride_ + buffer_size);
        scratch_ = aligned_buffer<double>(plan_.n_sums());
        clear(plan_, scratch_.get());
    }

    PackedBlock block(std::size_t number, std::size_t n) const {
        return {room_.get() + number * block_stride_, n, panel_stride_};
    }

    bool packed(std::span<const std::uint32_t> index) {
        return pack(loops_, rows_, index.data(), steps_, plan_, block_stride_, block(plan_.n_blocks, 0).data,
                    block(0, index.size()));
    }

    void sum(std::size_t n) {
        for (const Task& tile : tiles_)
            for (std::size_t number = 0; number < plan_.n_blocks; ++number)
                loops_.sum_outer(block(number, n), tile.first_panel, tile.rows,
                                 scratch_.get() + number * plan_.size * plan_.size, plan_.size);
        n_held_ += n;
    }

    const GramLoops& loops_;
    const Rows<T> rows_;
    const Steps steps_;
    Plan plan_;
    std::vector<Task> tiles_;
    std::size_t panel_stride_, block_stride_;
    AlignedBuffer<double> room_, scratch_;
    SharedSums* sums_ = nullptr;
    std::size_t n_held_ = 0;  // number of rows summed since the last drain()
    std::vector<double> largest_, remainder_;
    std::vector<std::uint8_t> far_;
    std::vector<std::uint32_t> near_, beyond_;
};

}  // namespace

template <class T>
double largest_magnitude(std::span<const T> values, unsigned n_threads) {
    constexpr std::size_t kTaskValues = 1 << 17;
    const GramLoops& loops = steelyard::loops().gram;
    const std::size_t n_tasks = (values.size() + kTaskValues - 1) / kTaskValues;
    std::vector<double> largest(n_tasks);
    parallel_for(n_tasks, n_tasks < 8 ? 1 : n_threads, [&](std::size_t task) {
        const std::size_t begin = task * kTaskValues;
        largest[task] = largest_of(loops, values.subspan(begin, std::min(kTaskValues, values.size() - begin)));
    });
    double top = 0.0;
    for (double value : largest)
        if (!(value <= top)) top = std::isnan(top) ? top : value;  // NaN is propagated
    return top;
}

template double largest_magnitude(std::span<const double>, unsigned);
template double largest_magnitude(std::span<const float>, unsigned);

template <class T>
void scan_rows(Rows<T> rows, Steps steps, std::span<double> largest, std::span<double> remainder,
               std::span<std::uint8_t> beyond, unsigned n_threads) {
    const GramLoops& loops = steelyard::loops().gram;
    const std::size_t d = rows.n_features, step = std::max<std::size_t>(1, (std::size_t{1} << 17) / d);
    const std::size_t n_tasks = (rows.n_rows + step - 1) / step;
    if (n_tasks <= 1 || n_threads <= 1) {
        scan(loops, rows, nullptr, steps, {largest.data(), remainder.data(), beyond.data()});
        return;
    }
    std::vector<double> found(2 * d * n_tasks, 0.0);
    parallel_for(n_tasks, n_threads, [&](std::size_t task) {
        const std::size_t begin = task * step, n = std::min(step, rows.n_rows - begin);
        double* mine = found.data() + 2 * d * task;
        scan(loops, {rows.data + begin * d, n, d}, nullptr, steps, {mine, mine + d, beyond.data() + begin});
    });
    for (std::size_t task = 0; task < n_tasks; ++task)
        for (std::size_t j = 0; j < d; ++j) {
            largest[j] = std::max(largest[j], found[2 * d * task + j]);
            remainder[j] = std::max(remainder[j], found[2 * d * task + d + j]);
        }
}

template void scan_rows(Rows<double>, Steps, std::span<double>, std::span<double>, std::span<std::uint8_t>, unsigned);
template void scan_rows(Rows<float>, Steps, std::span<double>, std::span<double>, std::span<std::uint8_t>, unsigned);

template <class T>
void add_products(Rows<T> rows, std::span<const std::uint32_t> index, Steps steps, std::span<const double> largest,
                  std::int64_t weight, Triangle& sums, unsigned n_threads) {
    const GramLoops& loops = steelyard::loops().gram;
    const std::size_t d = rows.n_features, n = index.size();
    const Plan plan(largest, d);
    const std::vector<double> any_slack(d, 1.0);  // rounding errors have already been checked
    steps.slack = any_slack.data();
    const std::size_t n_panels = (plan.size + loops.width - 1) / loops.width;
    const std::vector<Task> tasks = tiles(n_panels, loops.group);
    const std::size_t n_parts = (n + kGramBlockRows - 1) / kGramBlockRows;
    const std::size_t panel_stride = std::min(kGramBlockRows, n) * loops.width + kPanelPadding;
    const std::size_t block_stride = n_panels * panel_stride, part_stride = plan.n_blocks * block_stride;
    const unsigned n_useful = useful_threads(n_threads, n * plan.n_blocks, n_parts, plan.size);
    const std::size_t n_part_buffers = n_useful > 1 ? 2 : 1;
    const std::size_t buffer_size = 3 * n_panels * loops.width;
    const AlignedBuffer<double> buffers_of_parts = aligned_buffer<double>(n_part_buffers * part_stride);
    const AlignedBuffer<double> buffers = aligned_buffer<double>(n_useful * buffer_size);
    const AlignedBuffer<double> scratch = aligned_buffer<double>(plan.n_sums());
    clear(plan, scratch.get());
    // Counters: `next_task` for the tasks of each part, `next_row` for the rows of `scratch` in each drain.
    const std::size_t parts_a_time = std::max<std::size_t>(1, plan.most_rows / kGramBlockRows);
    const std::size_t n_drains = (n_parts + parts_a_time - 1) / parts_a_time;
    std::vector<std::atomic<std::size_t>> next_task(n_parts), next_row(n_drains);
    double most = 1.0;
    for (const double value : largest) most = std::max(most, std::min(value, kTwoDigits));
    sums.reserve(growth(n, most, weight));

    // The threads pack one part together, wait at a barrier, and then process the tasks of the part one by one.
    // While one thread still sums a part, another thread may pack the next part into the second buffer.
    // The tasks of the next part start after the next barrier.
    run_team(n_useful, [&](unsigned thread, unsigned n_team, SpinBarrier& meeting) noexcept {
        for (std::size_t p = 0; p < n_parts; ++p) {
            const std::size_t first = p * kGramBlockRows, count = std::min(kGramBlockRows, n - first);
            double* part_buffer = buffers_of_parts.get() + p % n_part_buffers * part_stride;
            const std::size_t begin = thread * count / n_team, end = (thread + 1) * count / n_team;
            pack(loops, rows, index.data() + first + begin, steps, plan, block_stride,
                 buffers.get() + thread * buffer_size, {part_buffer + begin * loops.width, end - begin, panel_stride});
            if (n_team > 1) meeting.wait();
            for (std::size_t t; (t = next_task[p].fetch_add(1, std::memory_order_relaxed)) < tasks.size();)
                for (std::size_t block = 0; block < plan.n_blocks; ++block)
                    loops.sum_outer({part_buffer + block * block_stride, count, panel_stride}, tasks[t].first_panel,
                                    tasks[t].rows, scratch.get() + block * plan.size * plan.size, plan.size);
            if ((p + 1) % parts_a_time != 0 && p + 1 < n_parts) continue;
            if (n_team > 1) meeting.wait();
            const std::size_t drain = p / parts_a_time;
            for (std::size_t row; (row = next_row[drain].fetch_add(1, std::memory_order_relaxed)) < sums.size();)
                drain_row(plan, scratch.get(), row, weight, sums);
            if (plan.digits == Digits::some) {
                if (n_team > 1) meeting.wait();
                if (thread == 0)
                    for (std::size_t k = 0; k < plan.high.size(); ++k) drain_high(plan, scratch.get(), k, weight, sums);
            }
            if (n_team > 1) meeting.wait();
        }
    });
}

template void add_products(Rows<double>, std::span<const std::uint32_t>, Steps, std::span<const double>, std::int64_t,
                           Triangle&, unsigned);
template void add_products(Rows<float>, std::span<const std::uint32_t>, Steps, std::span<const double>, std::int64_t,
                           Triangle&, unsigned);

template <class T>
bool add_unscanned(Rows<T> rows, Steps steps, std::span<const Share> shares, std::vector<std::uint32_t>& beyond,
                   unsigned n_threads) {
    struct Part {
        std::span<const std::uint32_t> index;
        SharedSums* sums;
    };
    std::vector<SharedSums> shared(shares.size());
    std::vector<Part> parts;
    std::size_t n = 0;
    for (std::size_t s = 0; s < shares.size(); ++s) {
        const auto index = shares[s].index;
        shared[s].sums = shares[s].sums;
        for (std::size_t first = 0; first < index.size(); first += kGramBlockRows)
            parts.push_back({index.subspan(first, std::min(kGramBlockRows, index.size() - first)), &shared[s]});
        n += index.size();
    }
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex collecting;
    run_team(useful_threads(n_threads, n, 1, rows.n_features + 1), [&](unsigned, unsigned, SpinBarrier&) noexcept {
        try {
            UnscannedRows<T> unseen(rows, steps);
            for (std::size_t p; !failed && (p = next.fetch_add(1)) < parts.size();)
                if (!unseen.take(parts[p].index, *parts[p].sums)) failed = true;
            unseen.drain();
            const std::lock_guard<std::mutex> mine(collecting);
            beyond.insert(beyond.end(), unseen.beyond().begin(), unseen.beyond().end());
        } catch (const std::exception&) {  // memory is exhausted, or sums exceed their bound
            failed = true;
        }
    });
    return !failed;
}

template bool add_unscanned(Rows<double>, Steps, std::span<const Share>, std::vector<std::uint32_t>&, unsigned);
template bool add_unscanned(Rows<float>, Steps, std::span<const Share>, std::vector<std::uint32_t>&, unsigned);

}  // namespace steelyard
