#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "arrays.hpp"
#include "koil/expansion.hpp"
#include "koil/linear_online.hpp"

namespace steelyard::bind {

namespace {

template <class T>
using Samples = Array<const T, 2>;
using SignRows = Array<const std::int8_t, 2>;

const std::int8_t* row_of(const SignRows& signs, std::size_t k) { return signs.data() + k * signs.shape(1); }

// Trains one learner per target. Row k of the signs belongs to learner k.
// All learners are trained in one call, so that after an interruption either all or none of them have learned the rows.
template <class T, class Rule>
void learn(const std::vector<KernelExpansion<T>*>& machines, const Samples<T>& X, const SignRows& signs,
           const Rule& rule) {
    require(signs.shape(0) == machines.size() && signs.shape(1) == X.shape(0),
            "KernelExpansion: one row of signs is needed for each binary model");
    for (const auto* machine : machines)
        require(machine && X.shape(1) == machine->rows().n_features(), "KernelExpansion: array shapes disagree");
    nb::gil_scoped_release unlocked;
    for (std::size_t k = 0; k < machines.size(); ++k) machines[k]->learn(rows<T>(X), row_of(signs, k), rule);
}

template <class T>
void bind_expansion(nb::module_& m, const char* name) {
    using Expansion = KernelExpansion<T>;
    using Numbers = typename Expansion::Numbers;
    nb::class_<Expansion>(m, name, "Weighted support vectors, which one of several online learners updates.")
        .def(nb::init<const KernelSpec&, std::size_t>(), "kernel"_a, "n_features"_a)
        .def_static(
            "from_state",
            [](const KernelSpec& kernel, Samples<T> vectors, Array<const double, 1> coef,
               Array<const std::uint64_t, 1> times, double bias, double margin, double deviation,
               std::uint64_t mistakes, std::uint64_t seen) {
                require(coef.size() == vectors.shape(0) && times.size() == vectors.shape(0),
                        "KernelExpansion: vectors, weights and times disagree");
                return new Expansion(kernel, rows<T>(vectors), vector_of<double>(coef), vector_of<std::uint64_t>(times),
                                     Numbers{bias, margin, deviation, mistakes, seen});
            },
            "kernel"_a, "vectors"_a.noconvert(), "coef"_a.noconvert(), "times"_a.noconvert(), "bias"_a, "margin"_a,
            "deviation"_a, "mistakes"_a, "seen"_a, nb::rv_policy::take_ownership)
        .def_prop_ro("n_features", [](const Expansion& self) { return self.rows().n_features(); })
        .def_prop_ro(
            "vectors",
            [](const Expansion& self) {
                const std::size_t d = self.rows().n_features();
                auto table = zeros<T, 2>({self.rows().size(), d});
                for (std::size_t i = 0; i < self.rows().size(); ++i) self.rows().copy_row(i, table.data() + i * d);
                return table;
            },
            nb::rv_policy::automatic)
        .def_prop_ro(
            "coef", [](const Expansion& self) { return array_of(self.coef()); }, nb::rv_policy::automatic)
        .def_prop_ro(
            "times", [](const Expansion& self) { return array_of(self.times()); }, nb::rv_policy::automatic)
        .def_prop_ro("bias", [](const Expansion& self) { return self.numbers().bias; })
        .def_prop_ro("margin", [](const Expansion& self) { return self.numbers().margin; })
        .def_prop_ro("deviation", [](const Expansion& self) { return self.numbers().deviation; })
        .def_prop_ro("mistakes", [](const Expansion& self) { return self.numbers().mistakes; })
        .def_prop_ro("seen", [](const Expansion& self) { return self.numbers().seen; })
        .def(
            "scores",
            [](const Expansion& self, Samples<T> X, unsigned n_threads) {
                require(X.shape(1) == self.rows().n_features(), "KernelExpansion.scores: wrong number of features");
                auto out = zeros<double, 1>({X.shape(0)});
                nb::gil_scoped_release unlocked;
                self.scores(rows<T>(X), out.data(), n_threads);
                return out;
            },
            "X"_a.noconvert(), "n_threads"_a = 1);
    using Machines = std::vector<Expansion*>;
    m.def(
        "norma_sweep",
        [](const Machines& machines, Samples<T> X, SignRows signs, double learning_rate, double regularization,
           double nu,
           std::uint64_t memory) { learn(machines, X, signs, NormaRule{learning_rate, regularization, nu, memory}); },
        "machines"_a, "X"_a.noconvert(), "signs"_a.noconvert(), "learning_rate"_a, "regularization"_a, "nu"_a,
        "memory"_a, "Make one pass of NORMA over the rows and update the binary models in place.");
    m.def(
        "random_budget_sweep",
        [](const Machines& machines, Samples<T> X, SignRows signs, std::size_t budget, std::uint64_t seed) {
            require(budget > 0, "KernelExpansion: the budget must be positive");
            learn(machines, X, signs, RandomBudgetRule{budget, seed});
        },
        "machines"_a, "X"_a.noconvert(), "signs"_a.noconvert(), "budget"_a, "seed"_a,
        "Make one pass of the randomized budget perceptron and update the binary models in place.");
    m.def(
        "forgetron_sweep",
        [](const Machines& machines, Samples<T> X, SignRows signs, std::size_t budget) {
            require(budget > 0, "KernelExpansion: the budget must be positive");
            learn(machines, X, signs, ForgetronRule{budget});
        },
        "machines"_a, "X"_a.noconvert(), "signs"_a.noconvert(), "budget"_a,
        "Make one pass of the Forgetron and update the binary models in place.");
    m.def(
        "projectron_sweep",
        [](const Machines& machines, Samples<T> X, SignRows signs, double threshold, bool margin) {
            learn(machines, X, signs, ProjectronRule{threshold, margin});
        },
        "machines"_a, "X"_a.noconvert(), "signs"_a.noconvert(), "threshold"_a, "margin"_a,
        "Make one pass of the Projectron and update the binary models in place.");
}

template <class T>
void bind_linear(nb::module_& m) {
    using Vector = Array<double, 1>;
    using Counts = Array<std::uint64_t, 1>;
    // Each list has one array per target, as in learn().
    using Vectors = std::vector<Vector>;
    using CountLists = std::vector<Counts>;
    using Tables = std::vector<Array<double, 2>>;
    using Blocks = std::vector<Array<double, 3>>;
    m.def(
        "perceptron_sweep",
        [](Samples<T> X, SignRows signs, const Vectors& weights, const Vectors& bias) {
            const std::size_t n = signs.shape(0);
            require(signs.shape(1) == X.shape(0) && weights.size() == n && bias.size() == n,
                    "perceptron_sweep: array shapes disagree");
            for (std::size_t k = 0; k < n; ++k)
                require(weights[k].size() == X.shape(1) && bias[k].size() == 1,
                        "perceptron_sweep: array shapes disagree");
            nb::gil_scoped_release unlocked;
            for (std::size_t k = 0; k < n; ++k)
                perceptron_sweep<T>(rows<T>(X), row_of(signs, k), weights[k].data(), *bias[k].data());
        },
        "X"_a.noconvert(), "signs"_a.noconvert(), "weights"_a.noconvert(), "bias"_a.noconvert(),
        "Make one pass of the perceptron and update the arrays (one per target) in place.");
    m.def(
        "oam_sweep",
        [](Samples<T> X, SignRows signs, const Vectors& weights, const Blocks& buffers, const CountLists& stored,
           const CountLists& seen, double C, std::uint64_t seed) {
            const std::size_t d = X.shape(1), n = signs.shape(0);
            require(signs.shape(1) == X.shape(0) && weights.size() == n && buffers.size() == n && stored.size() == n &&
                        seen.size() == n,
                    "oam_sweep: array shapes disagree");
            for (std::size_t k = 0; k < n; ++k) {
                const std::size_t budget = buffers[k].shape(1);
                require(weights[k].size() == d && buffers[k].shape(0) == 2 && buffers[k].shape(2) == d &&
                            stored[k].size() == 2 && seen[k].size() == 2,
                        "oam_sweep: array shapes disagree");
                require(stored[k].data()[0] <= budget && stored[k].data()[1] <= budget,
                        "oam_sweep: too many vectors stored");
            }
            nb::gil_scoped_release unlocked;
            for (std::size_t k = 0; k < n; ++k) {
                const std::size_t budget = buffers[k].shape(1);
                const OamState state{weights[k].data(),
                                     {buffers[k].data(), buffers[k].data() + budget * d},
                                     stored[k].data(),
                                     seen[k].data()};
                oam_sweep<T>(rows<T>(X), row_of(signs, k), state, budget, C, seed);
            }
        },
        "X"_a.noconvert(), "signs"_a.noconvert(), "weights"_a.noconvert(), "buffers"_a.noconvert(),
        "stored"_a.noconvert(), "seen"_a.noconvert(), "C"_a, "seed"_a,
        "Make one pass of sequential online AUC maximization and update the arrays (one per target) in place.");
    m.def(
        "opauc_sweep",
        [](Samples<T> X, SignRows signs, const Vectors& weights, const Tables& means, const Blocks& covariances,
           const CountLists& seen, double learning_rate, double regularization) {
            const std::size_t d = X.shape(1), n = signs.shape(0);
            require(signs.shape(1) == X.shape(0) && weights.size() == n && means.size() == n &&
                        covariances.size() == n && seen.size() == n,
                    "opauc_sweep: array shapes disagree");
            for (std::size_t k = 0; k < n; ++k)
                require(weights[k].size() == d && means[k].shape(0) == 2 && means[k].shape(1) == d &&
                            covariances[k].shape(0) == 2 && covariances[k].shape(1) == d &&
                            covariances[k].shape(2) == d && seen[k].size() == 2,
                        "opauc_sweep: array shapes disagree");
            nb::gil_scoped_release unlocked;
            for (std::size_t k = 0; k < n; ++k) {
                const OpaucState state{weights[k].data(),
                                       {means[k].data(), means[k].data() + d},
                                       {covariances[k].data(), covariances[k].data() + d * d},
                                       seen[k].data()};
                opauc_sweep<T>(rows<T>(X), row_of(signs, k), state, learning_rate, regularization);
            }
        },
        "X"_a.noconvert(), "signs"_a.noconvert(), "weights"_a.noconvert(), "means"_a.noconvert(),
        "covariances"_a.noconvert(), "seen"_a.noconvert(), "learning_rate"_a, "regularization"_a,
        "Make one pass of one-pass AUC optimization and update the arrays (one per target) in place.");
}

using Vectors = std::vector<Array<double, 1>>;
using Values = Array<const double, 1>;
using Columns = Array<const std::int32_t, 1>;
using RowStarts = Array<const std::int64_t, 1>;

// Rows of a matrix in CSR format; throws if the arrays are inconsistent.
class SparseRows {
  public:
    SparseRows(const Values& values, const Columns& columns, const RowStarts& starts, std::size_t n_features)
        : values_(values.data()),
          columns_(columns.data()),
          starts_(starts.data()),
          n_rows_(starts.size() ? starts.size() - 1 : 0) {
        require(starts.size() > 0 && columns.size() == values.size() && starts_[0] == 0 &&
                    starts_[n_rows_] == static_cast<std::int64_t>(values.size()),
                "sparse rows: array shapes disagree");
        bool is_valid = true;
        for (std::size_t i = 0; i < n_rows_; ++i) is_valid &= starts_[i] <= starts_[i + 1];
        for (std::size_t k = 0; k < columns.size(); ++k)
            is_valid &= columns_[k] >= 0 && static_cast<std::size_t>(columns_[k]) < n_features;
        require(is_valid, "sparse rows: a row start or a column is out of range");
    }
    std::size_t size() const { return n_rows_; }
    SparseSample operator()(std::size_t i) const {
        return {values_ + starts_[i], columns_ + starts_[i], static_cast<std::size_t>(starts_[i + 1] - starts_[i])};
    }

  private:
    const double* values_;
    const std::int32_t* columns_;
    const std::int64_t* starts_;
    std::size_t n_rows_;
};

// Makes one pass of AROW for every target, as learn() does for the other learners.
template <class RowAt>
void arow(std::size_t n_rows, std::size_t n_features, const RowAt& row_at, const SignRows& signs,
          const Vectors& weights, const Vectors& variances, const Vectors& bias, const Vectors& seen,
          double regularization) {
    const std::size_t n = signs.shape(0);
    require(signs.shape(1) == n_rows && weights.size() == n && variances.size() == n && bias.size() == n &&
                seen.size() == n,
            "arow_sweep: array shapes disagree");
    for (std::size_t k = 0; k < n; ++k)
        require(weights[k].size() == n_features && variances[k].size() == n_features && bias[k].size() == 2 &&
                    seen[k].size() == 2,
                "arow_sweep: array shapes disagree");
    nb::gil_scoped_release unlocked;
    for (std::size_t k = 0; k < n; ++k) {
        const ArowState state{weights[k].data(), variances[k].data(), bias[k].data(), seen[k].data()};
        arow_sweep(n_rows, row_at, row_of(signs, k), state, regularization);
    }
}

void bind_sparse(nb::module_& m) {
    m.def(
        "arow_sweep",
        [](Array<const double, 2> X, SignRows signs, const Vectors& weights, const Vectors& variances,
           const Vectors& bias, const Vectors& seen, double regularization) {
            const std::size_t d = X.shape(1);
            std::vector<std::int32_t> columns(d);
            std::iota(columns.begin(), columns.end(), 0);
            const auto row_at = [&](std::size_t i) { return SparseSample{X.data() + i * d, columns.data(), d}; };
            arow(X.shape(0), d, row_at, signs, weights, variances, bias, seen, regularization);
        },
        "X"_a.noconvert(), "signs"_a.noconvert(), "weights"_a.noconvert(), "variances"_a.noconvert(),
        "bias"_a.noconvert(), "seen"_a.noconvert(), "regularization"_a,
        "Make one pass of AROW over dense rows and update the arrays (one per target) in place.");
    m.def(
        "sparse_arow_sweep",
        [](Values values, Columns columns, RowStarts row_starts, SignRows signs, const Vectors& weights,
           const Vectors& variances, const Vectors& bias, const Vectors& seen, double regularization) {
            const std::size_t d = weights.empty() ? 0 : weights[0].size();
            const SparseRows rows(values, columns, row_starts, d);
            arow(rows.size(), d, rows, signs, weights, variances, bias, seen, regularization);
        },
        "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(), "signs"_a.noconvert(),
        "weights"_a.noconvert(), "variances"_a.noconvert(), "bias"_a.noconvert(), "seen"_a.noconvert(),
        "regularization"_a,
        "Make one pass of AROW over a sparse matrix in CSR format without duplicates and update the arrays (one per "
        "target) in place.");
    m.def(
        "sparse_linear_svm",
        [](Values values, Columns columns, RowStarts row_starts, SignRows signs, Array<const double, 2> costs,
           std::size_t n_features, std::size_t n_passes) {
            const SparseRows rows(values, columns, row_starts, n_features);
            const std::size_t n = signs.shape(0);
            require(signs.shape(1) == rows.size() && costs.shape(0) == n && costs.shape(1) == rows.size(),
                    "sparse_linear_svm: array shapes disagree");
            auto planes = zeros<double, 2>({n, n_features + 1});
            nb::gil_scoped_release unlocked;
            for (std::size_t k = 0; k < n; ++k)
                fit_linear_svm(rows.size(), rows, row_of(signs, k), costs.data() + k * rows.size(),
                               planes.data() + k * (n_features + 1), n_features, n_passes);
            return planes;
        },
        "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(), "signs"_a.noconvert(),
        "costs"_a.noconvert(), "n_features"_a, "n_passes"_a,
        "Fit linear SVMs to a sparse matrix in CSR format. Return weights and intercept, one row per target.");
}

}  // namespace

void bind_online(nb::module_& m) {
    bind_expansion<double>(m, "KernelExpansion64");
    bind_expansion<float>(m, "KernelExpansion32");
    bind_linear<double>(m);
    bind_linear<float>(m);
    bind_sparse(m);
}

}  // namespace steelyard::bind
