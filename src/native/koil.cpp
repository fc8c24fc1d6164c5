#include "steelyard/koil.hpp"

#include <algorithm>
#include <cmath>

#include "steelyard/random.hpp"
#include "steelyard/simd.hpp"
#include "steelyard/threads.hpp"

namespace steelyard {

namespace {

// Samples whose kernel values are evaluated together; two tiles of rows at the widest level.
constexpr std::size_t kBlockRows = 16;
constexpr std::size_t kTaskRows = 64;

}  // namespace

template <class T>
std::uint32_t SharedRows<T>::add(const T* row) {
    if (free_.empty()) {
        rows_.append(row);
        holders_.push_back(1);
        return static_cast<std::uint32_t>(rows_.size() - 1);
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    rows_.replace(id, row);
    holders_[id] = 1;
    return id;
}

template <class T>
void SharedRows<T>::release(std::uint32_t id) {
    if (--holders_[id] == 0) free_.push_back(id);
}

// A few samples and their values with the shared rows, kept right while the samples replace some of those rows.
template <class T>
class KoilEnsemble<T>::Block {
  public:
    Block(const KoilEnsemble& ensemble, std::size_t n_sources)
        : ensemble_(ensemble), packed_(ensemble.n_features(), kBlockRows), sources_(n_sources) {}

    void start(Rows<T> rows) {
        rows_ = rows;
        ld_ = ensemble_.shared_.rows().size() + rows.n_rows;  // each sample can add one shared row
        packed_.clear();
        for (Values& source : sources_) source.known = source.products_known = false;
    }

    const T* row(std::size_t i) const { return rows_.data + i * rows_.n_features; }

    // Values of sample i with all shared rows.
    const double* values(std::size_t source, std::size_t i) {
        Values& mine = sources_[source];
        if (!mine.known) {
            mine.values.resize(kBlockRows * ld_);
            kernel_rows(ensemble_.sources_[source], Rows<T>{row(i), rows_.n_rows - i, rows_.n_features},
                        ensemble_.shared_.rows(), mine.values.data() + i * ld_, ld_, 1);
            mine.known = true;
        }
        return mine.values.data() + i * ld_;
    }

    // Value of sample i with itself.
    double self(std::size_t source, std::size_t i) { return products(source)[i * kBlockRows + i]; }

    // Sample i has become the shared row `id`.
    void stored(std::size_t i, std::uint32_t id) {
        for (std::size_t source = 0; source < sources_.size(); ++source) {
            if (!sources_[source].known || i + 1 == rows_.n_rows) continue;
            const double* own = products(source);
            for (std::size_t later = i + 1; later < rows_.n_rows; ++later)
                sources_[source].values[later * ld_ + id] = own[later * kBlockRows + i];
        }
    }

  private:
    struct Values {
        AlignedVector<double> values;    // samples by shared rows
        AlignedVector<double> products;  // samples by samples
        bool known = false, products_known = false;
    };

    const double* products(std::size_t source) {
        Values& mine = sources_[source];
        if (!mine.products_known) {
            while (packed_.size() < rows_.n_rows) packed_.append(row(packed_.size()));
            mine.products.resize(kBlockRows * kBlockRows);
            kernel_rows(ensemble_.sources_[source], rows_, packed_, mine.products.data(), kBlockRows, 1);
            mine.products_known = true;
        }
        return mine.products.data();
    }

    const KoilEnsemble& ensemble_;
    Rows<T> rows_{};
    std::size_t ld_ = 0;
    PackedRows<T, double> packed_;
    std::vector<Values> sources_;
};

// Answers a machine's questions from the shared rows and, about the sample at hand, from its block.
template <class T>
class KoilEnsemble<T>::Access final : public KernelAccess {
  public:
    explicit Access(const KoilEnsemble& ensemble) : ensemble_(ensemble) {}
    Access(const KoilEnsemble& ensemble, Block& block, std::size_t source, std::size_t i)
        : ensemble_(ensemble), block_(&block), source_(source), i_(i) {}

    double self_similarity(const KoilMachine& machine) const override {
        double value = block_->self(source_, i_);
        if (ensemble_.kernels_.size() > 1) loops().kernel.finish_f64.from_sums(machine.kernel(), &value, 1);
        return value;
    }

    void slot_row(const KoilMachine& machine, std::size_t slot, double* row) const override {
        const PackedRows<T, double>& shared = ensemble_.shared_.rows();
        std::vector<T> vector(shared.n_features());
        AlignedVector<double> values(shared.size());
        shared.copy_row(machine.id(slot), vector.data());
        kernel_row(machine.kernel(), vector.data(), shared, values.data());
        for (int s = 0; s < 2; ++s)
            loops().online.gather(values.data(), machine.ids(s), row + machine.slot(s, 0), machine.count(s));
    }

  private:
    const KoilEnsemble& ensemble_;
    Block* block_ = nullptr;
    std::size_t source_ = 0, i_ = 0;
};

template <class T>
KoilEnsemble<T>::KoilEnsemble(std::size_t n_features, std::vector<KernelSpec> kernels, std::size_t budget,
                              std::uint64_t seed)
    : kernels_(std::move(kernels)), budget_(budget), seed_(seed), shared_(n_features) {
    for (const KernelSpec& kernel : kernels_) {
        const KernelSpec source =
            kernels_.size() == 1 ? kernel : KernelSpec{.kind = sum_kind(kernel.kind), .table = kernel.table};
        const auto found = std::find_if(sources_.begin(), sources_.end(), [&](const KernelSpec& known) {
            return known.kind == source.kind && known.table == source.table;
        });
        source_of_.push_back(static_cast<std::size_t>(found - sources_.begin()));
        if (found == sources_.end()) sources_.push_back(source);
    }
}

template <class T>
KoilEnsemble<T>::KoilEnsemble(Rows<T> vectors, std::vector<KernelSpec> kernels, std::size_t budget, std::uint64_t seed,
                              std::uint64_t n_seen, std::span<const KoilMachineState> states)
    : KoilEnsemble(vectors.n_features, std::move(kernels), budget, seed) {
    n_seen_ = n_seen;
    for (std::size_t i = 0; i < vectors.n_rows; ++i) shared_.add(vectors.data + i * vectors.n_features);
    for (const KoilMachineState& state : states) {
        machines_.emplace_back(kernels_[machines_.size() % kernels_.size()], budget_, state);
        machines_.back().fill_matrix(Access(*this));
        for (const KoilMachineState::Side& side : state.sides)
            for (const std::uint32_t id : side.ids) shared_.hold(id);
    }
    for (std::uint32_t id = 0; id < vectors.n_rows; ++id) shared_.release(id);  // held by machines alone
}

template <class T>
void KoilEnsemble<T>::add_target() {
    for (const KernelSpec& kernel : kernels_) machines_.emplace_back(kernel, budget_);
}

template <class T>
void KoilEnsemble<T>::copy_target(std::size_t target) {
    for (std::size_t l = 0; l < kernels_.size(); ++l) {
        const KoilMachine copied = machines_[target * kernels_.size() + l];
        for (int s = 0; s < 2; ++s)
            for (std::size_t i = 0; i < copied.count(s); ++i) shared_.hold(copied.ids(s)[i]);
        machines_.push_back(copied);
    }
}

template <class T>
void KoilEnsemble<T>::learn(Rows<T> X, const std::int8_t* signs, const KoilRule& rule) {
    Block block(*this, sources_.size());
    for (std::size_t begin = 0; begin < X.n_rows; begin += kBlockRows) {
        const std::size_t n = std::min(kBlockRows, X.n_rows - begin);
        block.start({X.data + begin * X.n_features, n, X.n_features});
        for (std::size_t i = 0; i < n; ++i, ++n_seen_, sample_id_ = KoilMachine::kNone)
            for (std::size_t target = 0; target < n_targets(); ++target)
                learn_sample(block, i, target, signs[target * X.n_rows + begin + i], rule);
    }
}

// One sample for the machines of one target: each kernel takes part with a probability that follows its weight.
template <class T>
void KoilEnsemble<T>::learn_sample(Block& block, std::size_t i, std::size_t target, int y, const KoilRule& rule) {
    const std::size_t m = kernels_.size(), first = target * m;
    if (m == 1) return learn_with(first, block, i, y, rule);
    double largest = machines_[first].log_weight;
    for (std::size_t l = 1; l < m; ++l) largest = std::max(largest, machines_[first + l].log_weight);
    for (std::size_t l = 0; l < m; ++l) {
        const double chance = std::exp(machines_[first + l].log_weight - largest);
        if (uniform_at(seed_, n_seen_, 1 + l) < chance) learn_with(first + l, block, i, y, rule);
    }
}

template <class T>
void KoilEnsemble<T>::gather(const KoilMachine& machine, int side, const double* values, double* out) const {
    loops().online.gather(values, machine.ids(side), out, machine.count(side));
    if (kernels_.size() > 1) loops().kernel.finish_f64.from_sums(machine.kernel(), out, machine.count(side));
}

template <class T>
void KoilEnsemble<T>::learn_with(std::size_t index, Block& block, std::size_t i, int y, const KoilRule& rule) {
    KoilMachine& machine = machines_[index];
    const double* values = block.values(source_of(index), i);
    machine.reserve(y > 0);
    for (int s = 0; s < 2; ++s) gather(machine, s, values, machine.similarities(s));
    const Access access(*this, block, source_of(index), i);
    const KoilMachine::Outcome outcome = machine.learn(y, rule, uniform_at(seed_, n_seen_), access);
    machine.log_weight -= rule.learning_rate * outcome.loss;
    if (outcome.slot != KoilMachine::kNone) {
        if (outcome.gone_id != KoilMachine::kNone) shared_.release(outcome.gone_id);
        if (sample_id_ != KoilMachine::kNone) {
            shared_.hold(sample_id_);
        } else {
            sample_id_ = shared_.add(block.row(i));
            block.stored(i, sample_id_);
        }
        machine.id(outcome.slot) = sample_id_;
    }
    if (machine.needs_refresh()) machine.refresh(access);
}

template <class T>
void KoilEnsemble<T>::scores(Rows<T> X, double* out, unsigned n_threads) const {
    const std::size_t n = X.n_rows;
    parallel_for((n + kTaskRows - 1) / kTaskRows, n_threads, [&](std::size_t task) {
        const std::size_t end = std::min(n, (task + 1) * kTaskRows);
        AlignedVector<double> values(kBlockRows * shared_.rows().size()), similarities(shared_.rows().size());
        for (std::size_t begin = task * kTaskRows; begin < end; begin += kBlockRows)
            score_block(X, begin, std::min(kBlockRows, end - begin), values.data(), similarities.data(), out);
    });
}

// Sums run in the order of the slots, so that they do not depend on where the shared rows happen to stand.
template <class T>
void KoilEnsemble<T>::score_block(Rows<T> X, std::size_t begin, std::size_t n_rows, double* values,
                                  double* similarities, double* out) const {
    const auto dot = loops().kernel.finish_f64.dot;
    const std::size_t n_shared = shared_.rows().size();
    for (std::size_t source = 0; source < sources_.size(); ++source) {
        kernel_rows(sources_[source], Rows<T>{X.data + begin * X.n_features, n_rows, X.n_features}, shared_.rows(),
                    values, n_shared, 1);
        for (std::size_t m = 0; m < machines_.size(); ++m) {
            if (source_of(m) != source) continue;
            const KoilMachine& machine = machines_[m];
            for (std::size_t i = 0; i < n_rows; ++i) {
                double sum = 0.0;
                for (int s = 0; s < 2; ++s) {
                    gather(machine, s, values + i * n_shared, similarities);
                    sum += dot(machine.coef(s), similarities, machine.count(s));
                }
                out[m * X.n_rows + begin + i] = machine.scale() * sum;
            }
        }
    }
}

template <class T>
std::vector<KoilMachineState> KoilEnsemble<T>::states(std::vector<T>& vectors) const {
    std::vector<std::uint32_t> row_of(shared_.rows().size(), KoilMachine::kNone);
    std::vector<KoilMachineState> states;
    const std::size_t d = n_features();
    std::uint32_t n_rows = 0;
    vectors.clear();
    for (const KoilMachine& machine : machines_) {
        states.push_back(machine.state());
        for (KoilMachineState::Side& side : states.back().sides)
            for (std::uint32_t& id : side.ids) {
                if (row_of[id] == KoilMachine::kNone) {
                    vectors.resize((n_rows + 1) * d);
                    shared_.rows().copy_row(id, vectors.data() + n_rows * d);
                    row_of[id] = n_rows++;
                }
                id = row_of[id];
            }
    }
    return states;
}

template <class T>
double KoilEnsemble<T>::cache_error() const {
    double error = 0.0;
    for (const KoilMachine& machine : machines_) error = std::max(error, machine.cache_error(Access(*this)));
    return error;
}

template class SharedRows<double>;
template class SharedRows<float>;
template class KoilEnsemble<double>;
template class KoilEnsemble<float>;

}  // namespace steelyard
