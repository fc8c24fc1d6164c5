#include <nanobind/stl/vector.h>

#include <algorithm>
#include <vector>

#include "arrays.hpp"
#include "steelyard/expansion.hpp"
#include "steelyard/linear_online.hpp"

namespace steelyard::bind {

namespace {

void require(bool agrees, const char* message) {
    if (!agrees) throw nb::value_error(message);
}

template <class T>
using Table = Array<const T, 2>;
using Signs = Array<const std::int8_t, 1>;

template <class T>
Rows<T> rows(const Table<T>& X) {
    return {X.data(), X.shape(0), X.shape(1)};
}

template <class T>
NumpyArray<T, 1> array_of(const std::vector<T>& values) {
    auto array = zeros<T, 1>({values.size()});
    std::copy(values.begin(), values.end(), array.data());
    return array;
}

template <class T>
std::vector<T> vector_of(const Array<const T, 1>& values) {
    return {values.data(), values.data() + values.size()};
}

template <class T, class Rule>
void learn(KernelExpansion<T>& self, const Table<T>& X, const Signs& y, const Rule& rule) {
    require(X.shape(1) == self.rows().n_features() && y.size() == X.shape(0),
            "KernelExpansion.learn: array shapes disagree");
    nb::gil_scoped_release unlocked;
    self.learn(rows<T>(X), y.data(), rule);
}

template <class T>
void bind_expansion(nb::module_& m, const char* name) {
    using Expansion = KernelExpansion<T>;
    using Numbers = typename Expansion::Numbers;
    nb::class_<Expansion>(m, name, "A list of support vectors with weights, learned by one of several rules.")
        .def(nb::init<const KernelSpec&, std::size_t>(), "kernel"_a, "n_features"_a)
        .def_static(
            "from_state",
            [](const KernelSpec& kernel, Table<T> vectors, Array<const double, 1> coef,
               Array<const std::uint64_t, 1> times, double bias, double margin, double deviation,
               std::uint64_t mistakes, std::uint64_t seen) {
                require(coef.size() == vectors.shape(0) && times.size() == vectors.shape(0),
                        "KernelExpansion: vectors, weights and times disagree");
                return new Expansion(kernel, rows<T>(vectors), vector_of(coef), vector_of(times),
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
            "learn_norma",
            [](Expansion& self, Table<T> X, Signs y, double learning_rate, double regularization, double nu,
               std::uint64_t memory) { learn(self, X, y, NormaRule{learning_rate, regularization, nu, memory}); },
            "X"_a.noconvert(), "y"_a.noconvert(), "learning_rate"_a, "regularization"_a, "nu"_a, "memory"_a)
        .def(
            "learn_random_budget",
            [](Expansion& self, Table<T> X, Signs y, std::size_t budget, std::uint64_t seed) {
                require(budget > 0, "KernelExpansion: the budget must be positive");
                learn(self, X, y, RandomBudgetRule{budget, seed});
            },
            "X"_a.noconvert(), "y"_a.noconvert(), "budget"_a, "seed"_a)
        .def(
            "learn_forgetron",
            [](Expansion& self, Table<T> X, Signs y, std::size_t budget) {
                require(budget > 0, "KernelExpansion: the budget must be positive");
                learn(self, X, y, ForgetronRule{budget});
            },
            "X"_a.noconvert(), "y"_a.noconvert(), "budget"_a)
        .def(
            "learn_projectron",
            [](Expansion& self, Table<T> X, Signs y, double threshold, bool margin) {
                learn(self, X, y, ProjectronRule{threshold, margin});
            },
            "X"_a.noconvert(), "y"_a.noconvert(), "threshold"_a, "margin"_a)
        .def(
            "scores",
            [](const Expansion& self, Table<T> X, unsigned n_threads) {
                require(X.shape(1) == self.rows().n_features(), "KernelExpansion.scores: wrong number of features");
                auto out = zeros<double, 1>({X.shape(0)});
                nb::gil_scoped_release unlocked;
                self.scores(rows<T>(X), out.data(), n_threads);
                return out;
            },
            "X"_a.noconvert(), "n_threads"_a = 1);
}

template <class T>
void bind_linear(nb::module_& m) {
    using Vector = Array<double, 1>;
    using Counts = Array<std::uint64_t, 1>;
    m.def(
        "perceptron_sweep",
        [](Table<T> X, Signs y, Vector weights, Vector bias) {
            require(y.size() == X.shape(0) && weights.size() == X.shape(1) && bias.size() == 1,
                    "perceptron_sweep: array shapes disagree");
            nb::gil_scoped_release unlocked;
            perceptron_sweep<T>(rows<T>(X), y.data(), weights.data(), *bias.data());
        },
        "X"_a.noconvert(), "y"_a.noconvert(), "weights"_a.noconvert(), "bias"_a.noconvert(),
        "One pass of the perceptron, in place.");
    m.def(
        "oam_sweep",
        [](Table<T> X, Signs y, Vector weights, Array<double, 3> buffers, Counts stored, Counts seen, double C,
           std::uint64_t seed) {
            const std::size_t d = X.shape(1), budget = buffers.shape(1);
            require(y.size() == X.shape(0) && weights.size() == d && buffers.shape(0) == 2 && buffers.shape(2) == d &&
                        stored.size() == 2 && seen.size() == 2,
                    "oam_sweep: array shapes disagree");
            require(stored.data()[0] <= budget && stored.data()[1] <= budget, "oam_sweep: too many vectors stored");
            const OamState state{
                weights.data(), {buffers.data(), buffers.data() + budget * d}, stored.data(), seen.data()};
            nb::gil_scoped_release unlocked;
            oam_sweep<T>(rows<T>(X), y.data(), state, budget, C, seed);
        },
        "X"_a.noconvert(), "y"_a.noconvert(), "weights"_a.noconvert(), "buffers"_a.noconvert(), "stored"_a.noconvert(),
        "seen"_a.noconvert(), "C"_a, "seed"_a, "One pass of sequential online AUC maximisation, in place.");
    m.def(
        "opauc_sweep",
        [](Table<T> X, Signs y, Vector weights, Array<double, 2> means, Array<double, 3> covariances, Counts seen,
           double learning_rate, double regularization) {
            const std::size_t d = X.shape(1);
            require(y.size() == X.shape(0) && weights.size() == d && means.shape(0) == 2 && means.shape(1) == d &&
                        covariances.shape(0) == 2 && covariances.shape(1) == d && covariances.shape(2) == d &&
                        seen.size() == 2,
                    "opauc_sweep: array shapes disagree");
            const OpaucState state{weights.data(),
                                   {means.data(), means.data() + d},
                                   {covariances.data(), covariances.data() + d * d},
                                   seen.data()};
            nb::gil_scoped_release unlocked;
            opauc_sweep<T>(rows<T>(X), y.data(), state, learning_rate, regularization);
        },
        "X"_a.noconvert(), "y"_a.noconvert(), "weights"_a.noconvert(), "means"_a.noconvert(),
        "covariances"_a.noconvert(), "seen"_a.noconvert(), "learning_rate"_a, "regularization"_a,
        "One pass of one-pass AUC maximisation, in place.");
}

}  // namespace

void bind_online(nb::module_& m) {
    bind_expansion<double>(m, "KernelExpansion64");
    bind_expansion<float>(m, "KernelExpansion32");
    bind_linear<double>(m);
    bind_linear<float>(m);
}

}  // namespace steelyard::bind
