#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "koil/koil.hpp"

namespace steelyard::bind {

namespace {

constexpr const char* kPolicyNames[] = {"reservoir++", "fifo++", "reservoir", "fifo", "unbounded"};

BufferPolicy policy_of(const std::string& name) {
    for (int policy = 0; policy < 5; ++policy)
        if (name == kPolicyNames[policy]) return static_cast<BufferPolicy>(policy);
    throw nb::value_error(("KoilEnsemble.learn: unknown policy '" + name + "'").c_str());
}

nb::dict dict_of(const KoilMachineState& state) {
    nb::list sides;
    for (const KoilMachineState::Side& side : state.sides) {
        nb::dict part;
        part["ids"] = array_of(side.ids);
        part["coef"] = array_of(side.coef);
        part["scores"] = array_of(side.scores);
        part["counted"] = array_of(side.applied);
        part["oldest"] = side.oldest;
        part["seen"] = side.seen;
        sides.append(part);
    }
    nb::dict out;
    out["sides"] = sides;
    out["behind"] = state.stale_side;
    out["scale"] = state.scale;
    out["log_weight"] = state.log_weight;
    out["steps"] = state.steps;
    return out;
}

bool all_finite(const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

KoilMachineState state_of(nb::dict description, std::size_t n_vectors, const KoilBudgets& budgets) {
    KoilMachineState state;
    state.scale = nb::cast<double>(description["scale"]);
    state.log_weight = nb::cast<double>(description["log_weight"]);
    state.steps = nb::cast<std::uint32_t>(description["steps"]);
    // Files of version 0.1 have no stale scores. The keys "behind" and "counted" belong to the file format.
    const bool has_behind = description.contains("behind");
    state.stale_side = has_behind ? nb::cast<int>(description["behind"]) : 0;
    require(state.scale > 0.0 && state.scale <= 1.0 && std::isfinite(state.log_weight),
            "KoilEnsemble: the scale or the weight of a kernel is out of range");
    const auto sides = nb::cast<nb::list>(description["sides"]);
    require(sides.size() == 2, "KoilEnsemble: a model needs one buffer per class");
    for (int s = 0; s < 2; ++s) {
        const auto part = nb::cast<nb::dict>(sides[s]);
        KoilMachineState::Side& side = state.sides[s];
        side.ids = vector_of<std::uint32_t>(part["ids"]);
        side.coef = vector_of<double>(part["coef"]);
        side.scores = vector_of<double>(part["scores"]);
        side.applied = has_behind ? vector_of<double>(part["counted"]) : side.coef;
        side.oldest = nb::cast<std::size_t>(part["oldest"]);
        side.seen = nb::cast<std::uint64_t>(part["seen"]);
        const std::size_t n = side.ids.size();
        require(
            (state.stale_side == 0 || state.stale_side == 1) && side.applied.size() == n && all_finite(side.applied),
            "KoilEnsemble: the weights of the stale scores are not valid");
        require(side.coef.size() == n && side.scores.size() == n && (budgets[s] == 0 || n <= budgets[s]) &&
                    side.seen >= n && side.oldest <= n && all_finite(side.coef) && all_finite(side.scores),
                "KoilEnsemble: a buffer is inconsistent");
        require(std::all_of(side.ids.begin(), side.ids.end(), [&](std::uint32_t id) { return id < n_vectors; }),
                "KoilEnsemble: a buffer refers to a vector that does not exist");
    }
    return state;
}

template <class T>
void bind_ensemble(nb::module_& m, const char* name) {
    using Ensemble = KoilEnsemble<T>;
    nb::class_<Ensemble>(m, name, "KOIL models that learn one stream, one model for each target and kernel.")
        .def(
            "__init__",
            [](Ensemble* self, std::size_t n_features, const std::vector<KernelSpec>& kernels, KoilBudgets budgets,
               std::uint64_t seed) {
                require(!kernels.empty(), "KoilEnsemble: at least one kernel is needed");
                new (self) Ensemble(n_features, kernels, budgets, seed);
            },
            "n_features"_a, "kernels"_a, "budgets"_a, "seed"_a)
        .def_static(
            "from_state",
            [](const std::vector<KernelSpec>& kernels, KoilBudgets budgets, std::uint64_t seed, std::uint64_t n_seen,
               Array<const T, 2> vectors, nb::typed<nb::list, nb::handle> machines) {
                require(!kernels.empty() && machines.size() % kernels.size() == 0,
                        "KoilEnsemble: every target needs one model for each kernel");
                std::vector<KoilMachineState> states;
                for (nb::handle machine : machines)
                    states.push_back(state_of(nb::cast<nb::dict>(machine), vectors.shape(0), budgets));
                return new Ensemble(rows<T>(vectors), kernels, budgets, seed, n_seen, states);
            },
            "kernels"_a, "budgets"_a, "seed"_a, "n_seen"_a, "vectors"_a.noconvert(), "machines"_a,
            nb::rv_policy::take_ownership)
        .def_prop_ro(
            "vectors",
            [](const Ensemble& self) {
                std::vector<T> vectors;
                self.states(vectors);
                const std::size_t d = self.n_features();
                auto table = zeros<T, 2>({d ? vectors.size() / d : 0, d});
                std::copy(vectors.begin(), vectors.end(), table.data());
                return table;
            },
            nb::rv_policy::automatic)
        .def(
            "machines",
            [](const Ensemble& self) {
                std::vector<T> vectors;
                nb::list machines;
                for (const KoilMachineState& state : self.states(vectors)) machines.append(dict_of(state));
                return nb::typed<nb::list, nb::handle>(machines);
            },
            "Return the buffers of every model. Ids are row numbers of `vectors`.")
        .def_prop_ro("n_seen", &Ensemble::n_seen)
        .def_prop_ro("n_targets", &Ensemble::n_targets)
        .def_prop_ro("n_machines", &Ensemble::n_machines)
        .def_prop_ro("n_features", &Ensemble::n_features)
        .def("add_target", &Ensemble::add_target)
        .def(
            "copy_target",
            [](Ensemble& self, std::size_t target) {
                require(target < self.n_targets(), "KoilEnsemble.copy_target: unknown target");
                self.copy_target(target);
            },
            "target"_a)
        .def(
            "learn",
            [](Ensemble& self, Array<const T, 2> X, Array<const std::int8_t, 2> signs, double C, double learning_rate,
               std::size_t n_neighbors, bool smooth, bool decay, const std::string& policy, double weight_rate,
               double rate_decay, bool nearest_first, bool store_all, unsigned n_threads) {
                require(X.shape(1) == self.n_features() && signs.shape(0) == self.n_targets() &&
                            signs.shape(1) == X.shape(0),
                        "KoilEnsemble.learn: array shapes disagree");
                require(n_neighbors > 0, "KoilEnsemble.learn: n_neighbors must be positive");
                const KoilRule rule{.C = C,
                                    .learning_rate = learning_rate,
                                    .n_neighbors = n_neighbors,
                                    .smooth = smooth,
                                    .decay = decay,
                                    .policy = policy_of(policy),
                                    .weight_rate = weight_rate,
                                    .rate_decay = rate_decay,
                                    .nearest_first = nearest_first,
                                    .store_all = store_all};
                nb::gil_scoped_release unlocked;
                self.learn(rows<T>(X), signs.data(), rule, n_threads);
            },
            "X"_a.noconvert(), "signs"_a.noconvert(), "C"_a, "learning_rate"_a, "n_neighbors"_a, "smooth"_a, "decay"_a,
            "policy"_a, "weight_rate"_a, "rate_decay"_a = 0.0, "nearest_first"_a = false, "store_all"_a = false,
            "n_threads"_a = 1,
            "Learn rows in order; signs[target, i] is the class of row i, +1 or -1. Each thread learns some of the "
            "models.")
        .def(
            "scores",
            [](const Ensemble& self, Array<const T, 2> X, unsigned n_threads) {
                require(X.shape(1) == self.n_features(), "KoilEnsemble.scores: wrong number of features");
                auto out = zeros<double, 2>({self.n_machines(), X.shape(0)});
                nb::gil_scoped_release unlocked;
                self.scores(rows<T>(X), out.data(), n_threads);
                return out;
            },
            "X"_a.noconvert(), "n_threads"_a = 1, "Return the decision values of every model for every row.")
        .def("cache_error", &Ensemble::cache_error,
             "Return the largest difference between a cached and a recomputed score of a support vector.");
}

}  // namespace

void bind_koil(nb::module_& m) {
    bind_ensemble<double>(m, "KoilEnsemble64");
    bind_ensemble<float>(m, "KoilEnsemble32");
}

}  // namespace steelyard::bind
