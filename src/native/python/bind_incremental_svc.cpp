#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "arrays.hpp"
#include "plain_row.hpp"
#include "svm/incremental_svc.hpp"

namespace steelyard::bind {

namespace {

using StateDict = nb::typed<nb::dict, nb::str, nb::any>;
using Counts = nb::typed<nb::list, nb::int_>;

// Copies of rows that are passed from Python, with the class code and the weight of each row.
struct OwnedRows {
    const double* X;
    std::vector<std::int32_t> codes;
    std::vector<double> weights;

    LabelledRows view() const { return {X, codes, weights}; }
};

// Copies rows. Row i has the code label_codes[numbers[i]]. If no weights are given, all weights are 1.
OwnedRows owned(const IncrementalSvc& self, const Array<const double, 2>& X,
                const Array<const std::int32_t, 1>& numbers, const std::vector<std::int32_t>& label_codes,
                const std::optional<Array<const double, 1>>& weights) {
    const std::size_t n = X.shape(0);
    require(X.shape(1) == self.rows().n_features() && numbers.size() == n && (!weights || weights->size() == n),
            "IncrementalSvc: array shapes disagree");
    OwnedRows rows{X.data(), std::vector<std::int32_t>(n), std::vector<double>(n, 1.0)};
    for (std::size_t i = 0; i < n; ++i) {
        const auto number = static_cast<std::size_t>(numbers.data()[i]);
        require(number < label_codes.size() && label_codes[number] >= 0, "IncrementalSvc: a code is out of range");
        rows.codes[i] = label_codes[number];
    }
    if (weights) std::copy_n(weights->data(), n, rows.weights.begin());
    return rows;
}

// Wraps a Python function (X, Z, out), which is called with the GIL for blocks of the kernel matrix.
KernelFunction called_from_native(nb::object function, std::size_t n_features) {
    return [function = std::move(function), n_features](const double* X, std::size_t n_x, const double* Z,
                                                        std::size_t n_z, double* out) {
        nb::gil_scoped_acquire locked;
        using Table = nb::ndarray<nb::numpy, const double, nb::ndim<2>, nb::c_contig>;
        using Block = nb::ndarray<nb::numpy, double, nb::ndim<2>, nb::c_contig>;
        const std::size_t x_shape[2] = {n_x, n_features}, z_shape[2] = {n_z, n_features}, shape[2] = {n_x, n_z};
        function(Table(X, 2, x_shape, nb::none()), Table(Z, 2, z_shape, nb::none()), Block(out, 2, shape, nb::none()));
    };
}

std::vector<ProblemSpec> problem_specs(const std::vector<std::int32_t>& positives,
                                       const Array<const double, 2>& class_bounds) {
    require(class_bounds.shape(0) == positives.size(), "IncrementalSvc: array shapes disagree");
    std::vector<ProblemSpec> specs;
    for (std::size_t k = 0; k < positives.size(); ++k) {
        const double* bounds = class_bounds.data() + k * class_bounds.shape(1);
        specs.push_back({positives[k], {bounds, bounds + class_bounds.shape(1)}});
    }
    return specs;
}

const SvmState& state_of(IncrementalSvc& self, std::size_t k) {
    require(k < self.n_problems(), "IncrementalSvc: the problem does not exist");
    return self.problem(k).state();
}

StateDict dumped(IncrementalSvc& self, std::size_t k) {
    const SvmState& state = state_of(self, k);
    StateDict values{nb::dict()};
    values["positive"] = self.spec(k).positive;
    values["class_bounds"] = array_of(self.spec(k).class_bounds);
    values["y"] = array_of(state.y);
    values["z"] = array_of(state.z);
    values["e"] = array_of(state.e);
    values["lower"] = array_of(state.lower);
    values["upper"] = array_of(state.upper);
    values["margin"] = array_of(state.margin);
    values["factor"] = array_of(state.factor.packed());
    values["constant"] = state.constant;
    values["bias"] = state.bias;
    values["n_sums"] = state.n_sums;
    values["slack"] = state.slack;
    values["exact_at"] = array_of(state.exact_at);
    values["active"] = array_of(self.problem(k).active());
    return values;
}

void load_problem(IncrementalSvc& self, const StateDict& values) {
    SvmState state;
    state.y = vector_of<double>(values["y"]);
    state.z = vector_of<double>(values["z"]);
    state.e = vector_of<double>(values["e"]);
    state.lower = vector_of<double>(values["lower"]);
    state.upper = vector_of<double>(values["upper"]);
    state.margin = vector_of<std::uint32_t>(values["margin"]);
    const std::vector<double> factor = vector_of<double>(values["factor"]);
    const std::size_t n = self.rows().size(), m = state.margin.size();
    state.exact_at = vector_of<double>(values["exact_at"]);
    for (const auto* column : {&state.y, &state.z, &state.e, &state.lower, &state.upper, &state.exact_at})
        require(column->size() == n, "IncrementalSvc: a problem needs one number per row");
    const std::vector<std::uint32_t> active = vector_of<std::uint32_t>(values["active"]);
    std::vector<int> n_seen(n);
    for (const std::uint32_t i : active)
        require(i < n && n_seen[i]++ == 0, "IncrementalSvc: the active set has a duplicate or an unknown row");
    for (const std::uint32_t i : state.margin)
        require(i < n && n_seen[i]++ == 1, "IncrementalSvc: the margin set has a duplicate or an inactive row");
    require(factor.size() == m * (m + 1) / 2 + m, "IncrementalSvc: the factor and the margin set differ in size");
    state.factor.restore(factor, m);
    state.constant = nb::cast<double>(values["constant"]);
    state.bias = nb::cast<double>(values["bias"]);
    state.n_sums = nb::cast<std::uint64_t>(values["n_sums"]);
    state.slack = nb::cast<double>(values["slack"]);
    self.restore_problem({nb::cast<std::int32_t>(values["positive"]), vector_of<double>(values["class_bounds"])},
                         std::move(state), active);
}

NumpyArray<double, 2> rows_of(const IncrementalSvc& self, const Array<const std::int64_t, 1>& which) {
    const KernelRows& rows = self.rows();
    auto X = zeros<double, 2>({which.size(), rows.n_features()});
    for (std::size_t k = 0; k < which.size(); ++k) {
        const auto i = static_cast<std::size_t>(which.data()[k]);
        require(i < rows.size(), "IncrementalSvc: the row does not exist");
        std::copy_n(rows.sample(i), rows.n_features(), X.data() + k * rows.n_features());
    }
    return X;
}

// Rows to add or forget, as passed from Python: X, numbers, label_codes, and weights or None.
using Batch = std::tuple<Array<const double, 2>, Array<const std::int32_t, 1>, std::vector<std::int32_t>,
                         std::optional<Array<const double, 1>>>;

OwnedRows owned(const IncrementalSvc& self, const std::optional<Batch>& batch) {
    if (!batch) return {nullptr, {}, {}};
    const auto& [X, numbers, label_codes, weights] = *batch;
    return owned(self, X, numbers, label_codes, weights);
}

// Sets IncrementalSvc::is_running during a call that releases the GIL.
class Running {
  public:
    explicit Running(IncrementalSvc& svc) : svc_(svc), was_running_(svc.is_running) { svc_.is_running = true; }
    ~Running() { svc_.is_running = was_running_; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

  private:
    IncrementalSvc& svc_;
    bool was_running_;
};

// Learns one row and forgets another, both of weight 1. The set of problems does not change.
// Returns false, without changes, if the general update() is needed.
bool slide(IncrementalSvc& self, nb::handle add, nb::handle retire, const LabelCodes& codes, Counts counts,
           double tolerance) {
    const std::size_t n_features = self.rows().n_features();
    const PlainRow in(add, n_features, codes), out(retire, n_features, codes);
    if (in.code < 0 || out.code < 0 || !is_finite(in.X.doubles(), n_features)) return false;
    {
        const Running running(self);
        nb::gil_scoped_release unlocked;
        if (!self.slide(in.X.doubles(), in.code, out.X.doubles(), out.code, tolerance)) return false;
    }
    for (const std::int32_t code : {in.code, out.code}) counts[code] = self.count(code);
    return true;
}

// Returns 1 if the score of a row is positive, 0 if not, and -1 if the general path is needed. Requires one problem.
// The general path is needed for unusual input, for another version, or while another thread updates the learner.
// The GIL is held during the whole call, so no thread can acquire the lock of the learner.
// Long computations use the general path.
int side(IncrementalSvc& self, nb::handle X, std::uint64_t version) {
    constexpr std::size_t kMaxProducts = 1 << 16;  // limit above which a computation would hold the GIL too long
    if (self.is_running || self.version() != version || self.n_problems() != 1 || self.rows().has_function()) return -1;
    const std::size_t d = self.rows().n_features();
    const ArrayView row(X.ptr());
    if (!row.has_shape({1, d}) || !row.has_doubles() || !is_finite(row.doubles(), d)) return -1;
    if (d * self.problem(0).active().size() > kMaxProducts) return -1;  // the active set contains all support vectors
    return self.score(row.doubles()) > 0.0 ? 1 : 0;
}

// Returns the support vectors of all problems, their coefficients (one row per problem) and the intercepts.
std::tuple<NumpyArray<double, 2>, NumpyArray<double, 2>, NumpyArray<double, 1>> support(IncrementalSvc& self) {
    const std::vector<std::uint32_t> support = self.support();
    const std::size_t d = self.rows().n_features(), n = support.size(), n_problems = self.n_problems();
    auto vectors = zeros<double, 2>({n, d}), coef = zeros<double, 2>({n_problems, n});
    auto intercept = zeros<double, 1>({n_problems});
    for (std::size_t s = 0; s < n; ++s) std::copy_n(self.rows().sample(support[s]), d, vectors.data() + s * d);
    for (std::size_t k = 0; k < n_problems; ++k) {
        const SvmState& state = self.problem(k).state();
        for (std::size_t s = 0; s < n; ++s) coef.data()[k * n + s] = state.z[support[s]];
        intercept.data()[k] = state.bias;
    }
    return {vectors, coef, intercept};
}

// Returns the index of a row to forget that was never learned, or None. The caller raises the error.
std::optional<std::size_t> update(IncrementalSvc& self, const std::optional<Batch>& add,
                                  const std::optional<Batch>& retire, const std::vector<std::int32_t>& positives,
                                  Array<const double, 2> class_bounds, double tolerance) {
    const OwnedRows incoming = owned(self, add), outgoing = owned(self, retire);
    const std::vector<ProblemSpec> specs = problem_specs(positives, class_bounds);
    for (const auto* rows : {&incoming, &outgoing})
        for (const std::int32_t code : rows->codes)
            require(specs.empty() || static_cast<std::size_t>(code) < class_bounds.shape(1),
                    "IncrementalSvc: a code is out of range");
    require(self.rows().size() + incoming.codes.size() < UINT32_MAX, "IncrementalSvc: more than 2^32 - 2 rows");
    const Running running(self);
    nb::gil_scoped_release unlocked;
    try {
        self.update(incoming.view(), outgoing.view(), specs, tolerance);
    } catch (const UnknownRow& unknown) {
        return unknown.index;
    }
    return std::nullopt;
}

}  // namespace

void bind_incremental_svc(nb::module_& m) {
    nb::exception<SolverFailure>(m, "SolverFailure", PyExc_RuntimeError);
    nb::class_<IncrementalSvc>(m, "IncrementalSvc",
                               "Learned rows and the optimal solutions of their binary SVM problems.")
        .def(
            "__init__",
            [](IncrementalSvc* self, std::size_t n_features, std::optional<KernelSpec> spec, nb::object function,
               std::size_t budget) {
                require(spec.has_value() != !function.is_none(), "IncrementalSvc: pass either a spec or a function");
                new (self) IncrementalSvc(
                    n_features, spec.value_or(KernelSpec{}),
                    function.is_none() ? KernelFunction{} : called_from_native(function, n_features), budget);
            },
            "n_features"_a, "spec"_a.none(), "function"_a.none(), "budget_bytes"_a)
        .def("update", &update, "add"_a.none(), "retire"_a.none(), "positives"_a, "class_bounds"_a.noconvert(),
             "tolerance"_a,
             "Learns and forgets rows and solves each problem. The update is atomic. Rows are tuples (X, numbers, "
             "label_codes, weights), where row i has the code label_codes[numbers[i]]. Returns the index of a row to "
             "forget that was never learned, or None.")
        .def("slide", &slide, "add"_a.none(), "retire"_a.none(), "codes"_a, "counts"_a, "tolerance"_a,
             "Learns one row and forgets another, both of weight 1 and given as tuples (X, y). The problems are those "
             "of the previous call, and `counts` is updated. Returns False, without changes, if update() is needed.")
        .def("side", &side, "row"_a.none(), "version"_a,
             "Returns 1 if the score of a row is positive, 0 if not, and -1 if the general path is "
             "needed.")
        .def("__len__", [](const IncrementalSvc& self) { return self.rows().size(); })
        .def_prop_ro("version", &IncrementalSvc::version, "Number of updates so far.")
        .def_prop_ro("n_wanted_rows", &IncrementalSvc::n_wanted)
        .def_prop_ro(
            "value_bytes", [](const IncrementalSvc& self) { return static_cast<int>(self.rows().precision()); },
            "Bytes of a cached kernel value: 2 (fixed point), 4 (float) or 8 (double).")
        .def(
            "kept_rows", [](const IncrementalSvc& self) { return array_of(self.rows().kept_samples()); },
            "Rows with cached kernel values, in the order of summation.")
        .def(
            "order", [](const IncrementalSvc& self) { return array_of(self.order()); },
            "Rows in an order such that a lookup finds the last of several equal rows.")
        .def_prop_ro("n_problems", &IncrementalSvc::n_problems)
        .def("codes", [](const IncrementalSvc& self) { return array_of(self.codes()); })
        .def("weights", [](const IncrementalSvc& self) { return array_of(self.weights()); })
        .def("rows", &rows_of, "which"_a.noconvert())
        .def(
            "support", &support,
            "Returns the support vectors of all problems, their coefficients (one row per problem) and the intercepts.")
        .def(
            "positive", [](IncrementalSvc& self, std::size_t k) { return state_of(self, k), self.spec(k).positive; },
            "problem"_a)
        .def(
            "coefficients", [](IncrementalSvc& self, std::size_t k) { return array_of(state_of(self, k).z); },
            "problem"_a, "Signed dual coefficients of all rows: y times alpha.")
        .def(
            "bias", [](IncrementalSvc& self, std::size_t k) { return state_of(self, k).bias; }, "problem"_a)
        .def(
            "margin_size", [](IncrementalSvc& self, std::size_t k) { return state_of(self, k).margin.size(); },
            "problem"_a)
        .def(
            "violation",
            [](IncrementalSvc& self, std::size_t k) {
                state_of(self, k);
                const Running running(self);
                nb::gil_scoped_release unlocked;
                return self.problem(k).violation();
            },
            "problem"_a, "Largest violation of the optimality conditions, computed from new sums.")
        .def(
            "report",
            [](IncrementalSvc& self, std::size_t k) {
                state_of(self, k);
                const SolveReport& report = self.problem(k).report();
                return std::tuple(report.steps, report.rounds, report.smo_steps);
            },
            "problem"_a, "Numbers of steps, rounds and SMO steps of the last solve.")
        .def("dump_problem", &dumped, "problem"_a)
        .def("load_problem", &load_problem, "values"_a)
        .def(
            "load_rows",
            [](IncrementalSvc& self, Array<const double, 2> X, Array<const std::int32_t, 1> codes,
               Array<const double, 1> weights, int value_bytes, Array<const std::uint32_t, 1> kept,
               Array<const std::uint32_t, 1> order, std::size_t n_wanted) {
                const std::size_t n = X.shape(0);
                require(self.rows().size() == 0, "IncrementalSvc: the learner must be empty");
                require(value_bytes == 2 || value_bytes == 4 || value_bytes == 8,
                        "IncrementalSvc: kernel values have 2, 4 or 8 bytes");
                require(X.shape(1) == self.rows().n_features() && codes.size() == n && weights.size() == n &&
                            order.size() == n,
                        "IncrementalSvc: array shapes disagree");
                std::vector<bool> is_there(n);
                for (const std::uint32_t i : span(order)) {
                    require(i < n && !is_there[i], "IncrementalSvc: the order has a duplicate or an unknown row");
                    is_there[i] = true;
                }
                for (const std::uint32_t i : span(kept)) require(i < n, "IncrementalSvc: a cached row does not exist");
                self.restore_rows({X.data(), span(codes), span(weights)},
                                  {static_cast<Precision>(value_bytes), span(kept), span(order), n_wanted});
            },
            "X"_a.noconvert(), "codes"_a.noconvert(), "weights"_a.noconvert(), "value_bytes"_a, "kept"_a.noconvert(),
            "order"_a.noconvert(), "n_wanted"_a);
    m.def(
        "all_finite", [](Array<const double, 2> X) { return is_finite(X.data(), X.size()); }, "X"_a.noconvert(),
        "Returns whether all values are finite.");
}

}  // namespace steelyard::bind
