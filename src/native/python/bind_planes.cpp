#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "arrays.hpp"
#include "plain_row.hpp"
#include "proximal/exact_sums.hpp"
#include "proximal/normal_threshold.hpp"
#include "proximal/planes.hpp"
#include "proximal/single_row_model.hpp"
#include "rlock.hpp"
#include "slots.hpp"

namespace steelyard::bind {

namespace {

using Attributes = nb::typed<nb::dict, nb::str, nb::any>;
using Labels = nb::typed<nb::list, nb::any>;

// Python interface of SingleRowModel.
// The interface rejects rows that are not arrays of doubles, and learners whose parameters have changed.
// For rejected rows and learners, Python uses the general path.
class BoundSingleRowModel {
  public:
    BoundSingleRowModel(ExactSums& sums, std::uint64_t version, std::vector<std::int32_t> slots, Labels labels,
                        LabelCodes codes, Attributes parameters, nb::str forbidden, const PlaneRule& rule)
        : labels_(std::move(labels)),
          codes_(std::move(codes)),
          parameters_(std::move(parameters)),
          forbidden_(std::move(forbidden)),
          model_(sums, version, std::move(slots), rule) {
        for (const auto& [name, value] : parameters_)
            if (nb::isinstance<nb::dict>(value)) dict_copies_[name] = value.attr("copy")();
    }

    // The GIL is held during the whole call, so no other thread runs between the check of the lock and the update.
    bool learn(nb::handle learner, const Attributes& attributes, nb::handle X, nb::handle y) {
        if (!is_free(learner, attributes)) return false;
        const PlainRow row(X.ptr(), y.ptr(), model_.n_features(), codes_);
        return row.code >= 0 && same_parameters(attributes) && model_.learn(values(row.X), row.code);
    }

    nb::object label(const Attributes& attributes, nb::handle X) {
        const ArrayView row(X.ptr());
        if (!row.has_shape({1, model_.n_features()}) || !row.has_doubles() || !same_parameters(attributes) ||
            !is_finite(row.doubles(), model_.n_features()))
            return nb::none();
        std::optional<std::size_t> winner;
        if (model_.n_features() < kMinFeaturesToReleaseGil) {
            winner = model_.winner(values(row));
        } else {
            nb::gil_scoped_release unlocked;
            winner = model_.winner(values(row));
        }
        return winner ? nb::borrow(labels_[*winner]).attr("copy")() : nb::none();
    }

  private:
    // Number of features from which the GIL is released while planes are computed.
    static constexpr std::size_t kMinFeaturesToReleaseGil = 40;

    std::span<const double> values(const ArrayView& row) const { return {row.doubles(), model_.n_features()}; }

    // Returns whether the learner still has these attributes and no other thread is changing it.
    static bool is_free(nb::handle learner, const Attributes& attributes) {
        static PyObject* const name = PyUnicode_InternFromString("_lock");
        const nb::object now = nb::steal(PyObject_GenericGetDict(learner.ptr(), nullptr));
        PyObject* lock = PyDict_GetItemWithError(attributes.ptr(), name);
        return now.is(attributes) && (lock == nullptr || can_acquire(lock));
    }

    bool same_parameters(const Attributes& attributes) const {
        for (const auto& [name, value] : parameters_)
            if (PyDict_GetItemWithError(attributes.ptr(), name.ptr()) != value.ptr()) return false;
        for (const auto& [name, value] : dict_copies_) {
            const int same = PyObject_RichCompareBool(parameters_[name].ptr(), value.ptr(), Py_EQ);
            if (same < 0) PyErr_Clear();  // the general path will raise the error
            if (same != 1) return false;
        }
        return PyDict_GetItemWithError(attributes.ptr(), forbidden_.ptr()) == nullptr;
    }

    Labels labels_;
    LabelCodes codes_;
    Attributes parameters_, dict_copies_;  // dict_copies_ contains copies of dictionaries, to detect in-place changes
    nb::str forbidden_;
    SingleRowModel model_;
};

}  // namespace

void bind_planes(nb::module_& m) {
    m.def(
        "solve_planes",
        [](const ExactSums& sums, std::vector<std::int32_t> slots, Array<double, 2> coef, Array<double, 1> intercept,
           double C, bool balanced, bool standardize, bool pairs, bool penalize_intercept, bool gmean,
           std::vector<double> factors, unsigned n_threads) {
            const std::size_t n_planes = n_planes_of(slots.size());
            const std::size_t d = sums.read([](const ExactState& state) { return state.n_features; });
            require(!slots.empty() && coef.shape(0) == n_planes && coef.shape(1) == d && intercept.size() == n_planes,
                    "solve_planes: array shapes disagree");
            require(factors.empty() || factors.size() == slots.size(), "solve_planes: one factor per slot is needed");
            check_present(slots);
            double slope = 0.0;
            nb::gil_scoped_release unlocked;
            const ExactView view = sums.view(slots, n_threads);
            const PlaneRule rule{C, balanced, standardize, pairs, penalize_intercept, gmean, std::move(factors)};
            return solve_planes(view, rule, coef.data(), intercept.data(), &slope) ? slope : -1.0;
        },
        "sums"_a, "slots"_a, "coef"_a.noconvert(), "intercept"_a.noconvert(), "C"_a, "balanced"_a, "standardize"_a,
        "pairs"_a, "penalize_intercept"_a, "gmean"_a, "factors"_a, "n_threads"_a = 1,
        "Writes the planes of the classes in these slots. Returns the slope of the log-odds, or a negative number if a "
        "matrix is not positive definite.");
    m.def(
        "normal_gmean_thresholds",
        [](Array<const double, 2> negative, Array<const double, 2> positive, Array<double, 1> thresholds) {
            const std::size_t n = thresholds.size();
            require(
                negative.shape(0) == n && negative.shape(1) == 2 && positive.shape(0) == n && positive.shape(1) == 2,
                "normal_gmean_thresholds: array shapes disagree");
            for (std::size_t k = 0; k < n; ++k)
                thresholds.data()[k] = normal_gmean_threshold({negative.data()[2 * k], negative.data()[2 * k + 1]},
                                                              {positive.data()[2 * k], positive.data()[2 * k + 1]});
        },
        "negative"_a, "positive"_a, "thresholds"_a.noconvert(),
        "Writes the threshold with the largest G-mean of each pair of normal distributions, given by mean and "
        "variance.");
    nb::class_<BoundSingleRowModel>(m, "SingleRowModel", "Model that predicts and learns one row at a time.")
        .def(
            "__init__",
            [](BoundSingleRowModel* self, ExactSums& sums, std::uint64_t version, std::vector<std::int32_t> slots,
               Labels labels, LabelCodes codes, Attributes parameters, nb::str forbidden, double C, bool balanced,
               bool standardize, bool pairs, bool penalize_intercept, bool gmean, std::vector<double> factors) {
                require(!slots.empty() && labels.size() == slots.size(),
                        "SingleRowModel: one label per slot is needed");
                require(factors.empty() || factors.size() == slots.size(),
                        "SingleRowModel: one factor per slot is needed");
                check_present(slots);
                const PlaneRule rule{C, balanced, standardize, pairs, penalize_intercept, gmean, std::move(factors)};
                new (self) BoundSingleRowModel(sums, version, std::move(slots), std::move(labels), std::move(codes),
                                               std::move(parameters), std::move(forbidden), rule);
            },
            "sums"_a, "version"_a, "slots"_a, "labels"_a, "codes"_a, "parameters"_a, "forbidden"_a, "C"_a, "balanced"_a,
            "standardize"_a, "pairs"_a, "penalize_intercept"_a, "gmean"_a, "factors"_a, nb::keep_alive<1, 2>())
        .def("learn", &BoundSingleRowModel::learn, "learner"_a, "attributes"_a, "X"_a.none(), "y"_a.none(),
             "Learns one row. Returns False, without changes, if the general path is needed.")
        .def("label", &BoundSingleRowModel::label, "attributes"_a, "X"_a.none(),
             "Returns the label of one row in a new array, or None if the general path is needed.");
}

}  // namespace steelyard::bind
