#include "steelyard/koil.hpp"

#include <algorithm>
#include <cmath>

#include "koil_block.hpp"
#include "steelyard/random.hpp"
#include "steelyard/threads.hpp"

namespace steelyard {

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

template <class T>
void KoilEnsemble<T>::Member::slot_row(int side, std::size_t i, double* row) const {
    std::vector<T> vector(rows[side].n_features());
    rows[side].copy_row(i, vector.data());
    for (int s = 0; s < 2; ++s) kernel_row(machine.kernel(), vector.data(), rows[s], row + machine.slot(s, 0));
}

template <class T>
void KoilEnsemble<T>::Member::store(int side, std::size_t i, const T* vector) {
    if (i < rows[side].size())
        rows[side].replace(i, vector);
    else
        rows[side].append(vector);
}

template <class T>
KoilEnsemble<T>::KoilEnsemble(std::size_t n_features, std::vector<KernelSpec> kernels, std::size_t budget,
                              std::uint64_t seed)
    : kernels_(std::move(kernels)), budget_(budget), seed_(seed), shared_(n_features) {}

template <class T>
KoilEnsemble<T>::KoilEnsemble(Rows<T> vectors, std::vector<KernelSpec> kernels, std::size_t budget, std::uint64_t seed,
                              std::uint64_t n_seen, std::span<const KoilMachineState> states)
    : KoilEnsemble(vectors.n_features, std::move(kernels), budget, seed) {
    const std::size_t d = vectors.n_features;
    n_seen_ = n_seen;
    for (std::size_t i = 0; i < vectors.n_rows; ++i) shared_.add(vectors.data + i * d);
    for (const KoilMachineState& state : states) {
        const KernelSpec& kernel = kernels_[members_.size() % kernels_.size()];
        Member& member = members_.emplace_back(kernel, budget_, d);
        member.machine = KoilMachine(kernel, budget_, state);
        for (int s = 0; s < 2; ++s)
            for (const std::uint32_t id : state.sides[s].ids) {
                member.rows[s].append(vectors.data + id * d);
                shared_.hold(id);
            }
        member.machine.fill_matrix(member);
    }
    for (std::uint32_t id = 0; id < vectors.n_rows; ++id) shared_.release(id);  // held by machines alone
}

template <class T>
void KoilEnsemble<T>::add_target() {
    for (const KernelSpec& kernel : kernels_) members_.emplace_back(kernel, budget_, n_features());
}

template <class T>
void KoilEnsemble<T>::copy_target(std::size_t target) {
    std::vector<T> vectors;
    std::vector<KoilMachineState> all = states(vectors);
    const std::size_t m = kernels_.size(), d = n_features();
    for (std::size_t l = 0; l < m; ++l) all.push_back(KoilMachineState(all[target * m + l]));
    *this =
        KoilEnsemble(Rows<T>{vectors.data(), d ? vectors.size() / d : 0, d}, kernels_, budget_, seed_, n_seen_, all);
}

template <class T>
double KoilEnsemble<T>::largest_log_weight(std::size_t target) const {
    const std::size_t m = kernels_.size(), first = target * m;
    double largest = members_[first].machine.log_weight;
    for (std::size_t l = 1; l < m; ++l) largest = std::max(largest, members_[first + l].machine.log_weight);
    return largest;
}

// Which machines learn the sample: of each target every kernel with a probability that follows its weight.
template <class T>
void KoilEnsemble<T>::draw_parts(Block& block, std::size_t i) {
    const std::size_t m = kernels_.size();
    parts_.clear();
    for (std::size_t target = 0; target < n_targets(); ++target) {
        if (m > 1) block.set_chances(target, largest_log_weight(target));
        for (std::size_t member = target * m; member < (target + 1) * m; ++member)
            if (block.takes_part(member, i)) parts_.push_back({member, block.sample_for(target, i), {}});
    }
}

// What each machine does by itself; several can do it at the same time.
template <class T>
void KoilEnsemble<T>::learn_parts(Block& block, std::size_t i, std::span<Part> parts, const KoilRule& rule) {
    for (Part& part : parts) {
        Member& member = members_[part.member];
        const int side = part.sample.side();
        member.machine.reserve(side);
        block.fill_in(part.sample, part.member, i);
        member.machine.learn(part.sample, rule, member, part.outcome);
        member.machine.log_weight -= rule.weight_rate * part.outcome.loss;
        if (part.outcome.place != KoilMachine::kNone) {
            member.store(side, part.outcome.place, block.row(i));
            block.stored(part.member, i, member.machine.slot(side, part.outcome.place));
        }
        if (member.machine.needs_refresh()) member.machine.refresh(member);
    }
}

// The vectors that machines have taken and given up.
template <class T>
void KoilEnsemble<T>::settle(Block& block, std::size_t i) {
    std::uint32_t sample_id = KoilMachine::kNone;
    for (const Part& part : parts_) {
        if (part.outcome.place == KoilMachine::kNone) continue;
        std::uint32_t& id = members_[part.member].machine.ids(part.sample.side())[part.outcome.place];
        if (part.outcome.evicted) shared_.release(id);
        if (sample_id == KoilMachine::kNone)
            sample_id = shared_.add(block.row(i));
        else
            shared_.hold(sample_id);
        id = sample_id;
    }
    if (sample_id != KoilMachine::kNone) block.shared(i, sample_id);
    ++n_seen_;
}

template <class T>
void KoilEnsemble<T>::learn(Rows<T> X, const std::int8_t* signs, const KoilRule& rule, unsigned n_threads) {
    Block block(*this, signs, X.n_rows);
    const auto n_members = static_cast<unsigned>(members_.size());
    run_team(std::max(1u, std::min(n_threads, n_members)), [&](unsigned thread, unsigned n, Meeting& meeting) {
        const auto meet = [&] {
            if (n > 1) meeting.wait();
        };
        for (std::size_t t = 0; t < X.n_rows; ++t) {
            const std::size_t i = t % kBlockRows;
            if (thread == 0) {
                if (i == 0) block.start(X, t, n > 1);
                draw_parts(block, i);
            }
            meet();
            const std::size_t begin = parts_.size() * thread / n, end = parts_.size() * (thread + 1) / n;
            learn_parts(block, i, std::span(parts_).subspan(begin, end - begin), rule);
            meet();
            if (thread == 0) settle(block, i);
        }
    });
}

template <class T>
void KoilEnsemble<T>::scores(Rows<T> X, double* out, unsigned n_threads) const {
    std::vector<double> other_side(X.n_rows);
    for (const Member& member : members_) {
        const KoilMachine& machine = member.machine;
        kernel_sums(machine.kernel(), X, member.rows[0], machine.coef(0), out, n_threads);
        kernel_sums(machine.kernel(), X, member.rows[1], machine.coef(1), other_side.data(), n_threads);
        for (std::size_t i = 0; i < X.n_rows; ++i) out[i] = machine.scale() * (out[i] + other_side[i]);
        out += X.n_rows;
    }
}

template <class T>
std::vector<KoilMachineState> KoilEnsemble<T>::states(std::vector<T>& vectors) const {
    std::vector<std::uint32_t> row_of(shared_.rows().size(), KoilMachine::kNone);
    std::vector<KoilMachineState> states;
    const std::size_t d = n_features();
    std::uint32_t n_rows = 0;
    vectors.clear();
    for (const Member& member : members_) {
        states.push_back(member.machine.state());
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
    for (const Member& member : members_) error = std::max(error, member.machine.cache_error(member));
    return error;
}

template class SharedRows<double>;
template class SharedRows<float>;
template class KoilEnsemble<double>;
template class KoilEnsemble<float>;

}  // namespace steelyard
