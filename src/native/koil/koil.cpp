#include "koil/koil.hpp"

#include <algorithm>
#include <cmath>

#include "common/denormals.hpp"
#include "common/threads.hpp"
#include "koil/koil_window.hpp"

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
void KoilEnsemble<T>::Member::kernel_values(int side, std::size_t i, int with, T* values) const {
    const Denormals kept(true);
    std::vector<T> vector(rows[side].n_features());
    rows[side].copy_row(i, vector.data());
    kernel_row(machine.kernel(), vector.data(), rows[with], values);
}

template <class T>
void KoilEnsemble<T>::Member::store(int side, std::size_t i, const T* vector) {
    if (i < rows[side].size())
        rows[side].replace(i, vector);
    else
        rows[side].append(vector);
}

template <class T>
KoilEnsemble<T>::KoilEnsemble(std::size_t n_features, std::vector<KernelSpec> kernels, KoilBudgets budgets,
                              std::uint64_t seed)
    : kernels_(std::move(kernels)), budgets_(budgets), seed_(seed), shared_(n_features) {}

template <class T>
KoilEnsemble<T>::KoilEnsemble(Rows<T> vectors, std::vector<KernelSpec> kernels, KoilBudgets budgets, std::uint64_t seed,
                              std::uint64_t n_seen, std::span<const KoilMachineState> states)
    : KoilEnsemble(vectors.n_features, std::move(kernels), budgets, seed) {
    const std::size_t d = vectors.n_features;
    n_seen_ = n_seen;
    for (std::size_t i = 0; i < vectors.n_rows; ++i) shared_.add(vectors.data + i * d);
    for (const KoilMachineState& state : states) {
        const KernelSpec& kernel = kernels_[members_.size() % kernels_.size()];
        Member& member = members_.emplace_back(kernel, budgets_, d);
        member.machine = KoilMachine<T>(kernel, budgets_, state);
        for (int s = 0; s < 2; ++s)
            for (const std::uint32_t id : state.sides[s].ids) {
                member.rows[s].append(vectors.data + id * d);
                shared_.hold(id);
            }
        member.machine.fill_matrix(member);
    }
    // Drop the initial references, so that only models hold references to vectors.
    for (std::uint32_t id = 0; id < vectors.n_rows; ++id) shared_.release(id);
}

template <class T>
void KoilEnsemble<T>::add_target() {
    for (const KernelSpec& kernel : kernels_) members_.emplace_back(kernel, budgets_, n_features());
}

template <class T>
void KoilEnsemble<T>::copy_target(std::size_t target) {
    std::vector<T> vectors;
    std::vector<KoilMachineState> all = states(vectors);
    const std::size_t m = kernels_.size(), d = n_features();
    for (std::size_t l = 0; l < m; ++l) all.push_back(KoilMachineState(all[target * m + l]));
    *this =
        KoilEnsemble(Rows<T>{vectors.data(), d ? vectors.size() / d : 0, d}, kernels_, budgets_, seed_, n_seen_, all);
}

template <class T>
void KoilEnsemble<T>::learn(Rows<T> X, const std::int8_t* signs, const KoilRule& rule, unsigned n_threads) {
    Window window(*this, signs, X.n_rows, rule);
    const auto n_members = static_cast<unsigned>(members_.size());
    unsigned n_active = 0;  // number of threads that process the window; thread 0 sets it before a barrier
    run_team(std::max(1u, std::min(n_threads, n_members)), [&](unsigned thread, unsigned n, SpinBarrier& meeting) {
        const auto meet = [&] {
            if (n > 1) meeting.wait();
        };
        for (std::size_t begin = 0; begin < X.n_rows;) {
            if (thread == 0) {
                n_active = meeting.is_slow() ? 1 : n;
                window.start(X, begin);
            }
            meet();
            if (thread >= n_active) return;
            n = n_active;
            begin += window.n_rows();
            window.evaluate_shared(thread, n);
            meet();
            window.process(thread, n);
            meet();
            if (thread == 0) window.commit();
        }
    });
}

template <class T>
void KoilEnsemble<T>::scores(Rows<T> X, double* out, unsigned n_threads) const {
    std::vector<T> sums[2] = {std::vector<T>(X.n_rows), std::vector<T>(X.n_rows)};
    for (const Member& member : members_) {
        const KoilMachine<T>& machine = member.machine;
        for (int s = 0; s < 2; ++s)
            kernel_sums(machine.kernel(), X, member.rows[s], machine.coef(s), sums[s].data(), n_threads);
        for (std::size_t i = 0; i < X.n_rows; ++i) out[i] = machine.scale() * (sums[0][i] + sums[1][i]);
        out += X.n_rows;
    }
}

template <class T>
std::vector<KoilMachineState> KoilEnsemble<T>::states(std::vector<T>& vectors) const {
    std::vector<std::uint32_t> row_of(shared_.rows().size(), kNoVector);
    std::vector<KoilMachineState> states;
    const std::size_t d = n_features();
    std::uint32_t n_rows = 0;
    vectors.clear();
    for (const Member& member : members_) {
        states.push_back(member.machine.state());
        for (KoilMachineState::Side& side : states.back().sides)
            for (std::uint32_t& id : side.ids) {
                if (row_of[id] == kNoVector) {
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
