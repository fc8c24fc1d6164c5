#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "arrays.hpp"
#include "proximal/exact_sums.hpp"
#include "proximal/sufficient_statistics.hpp"
#include "simd/loops_gram.hpp"
#include "slots.hpp"

namespace steelyard::bind {

namespace {

using Weights = std::optional<Array<const double, 1>>;
using RefusalTuple = std::tuple<int, int, double, double>;  // kind of error, slot, weight to remove, available weight

std::span<const double> span_of(const Weights& weights) { return weights ? span(*weights) : std::span<const double>{}; }

RefusalTuple refusal_tuple(const Removal& removal) {
    return {static_cast<int>(removal.refusal), removal.slot, removal.wanted, removal.present};
}

nb::bytes bytes_of(const std::vector<std::uint8_t>& bytes) {
    return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

template <class T>
ExactBatch<T> batch_of(const ExactSums& sums, const Array<const T, 2>& X, const Array<const std::int32_t, 1>& slots,
                       const Weights& weights) {
    const std::size_t n = X.shape(0), d = sums.read([](const ExactState& s) { return s.n_features; });
    if (slots.size() != n || X.shape(1) != d || (weights && weights->size() != n))
        throw nb::value_error("array shapes disagree");
    if (n > UINT32_MAX) throw nb::value_error("more than 2^32 - 1 rows in one call");
    check_slots(span(slots));
    return {{X.data(), n, d}, span(slots), span_of(weights)};
}

template <class T>
void bind_dense(nb::class_<ExactSums>& c) {
    c.def(
        "add",
        [](ExactSums& self, Array<const T, 2> X, Array<const std::int32_t, 1> slots, Weights weights,
           unsigned n_threads) {
            const ExactBatch<T> batch = batch_of<T>(self, X, slots, weights);
            nb::gil_scoped_release unlocked;
            self.update([&](ExactState& state) { add_rows(state, batch, n_threads); });
        },
        "X"_a.noconvert(), "slots"_a.noconvert(), "weights"_a.noconvert().none(), "n_threads"_a = 1,
        "Adds rows. Raises ValueError, without changes, if a value is not finite.");
    c.def(
        "remove",
        [](ExactSums& self, Array<const T, 2> X, Array<const std::int32_t, 1> slots, Weights weights,
           unsigned n_threads) {
            const ExactBatch<T> batch = batch_of<T>(self, X, slots, weights);
            nb::gil_scoped_release unlocked;
            return refusal_tuple(self.update([&](ExactState& state) { return remove_rows(state, batch, n_threads); }));
        },
        "X"_a.noconvert(), "slots"_a.noconvert(), "weights"_a.noconvert().none(), "n_threads"_a = 1,
        "Removes rows, all or none. Returns (0, ...) on success, (1, slot, wanted, present) for too many rows of a "
        "class, and (2, slot, ...) for rows that were never added.");
}

template <class Index>
SparseBatch<Index> sparse_of(const ExactSums& sums, const Array<const double, 1>& values,
                             const Array<const Index, 1>& columns, const Array<const Index, 1>& row_starts,
                             const Array<const std::int32_t, 1>& slots, const Weights& weights) {
    const std::size_t n = slots.size(), d = sums.read([](const ExactState& s) { return s.n_features; });
    if (row_starts.size() != n + 1 || columns.size() != values.size() || (weights && weights->size() != n))
        throw nb::value_error("array shapes disagree");
    const Index stored = static_cast<Index>(values.size());
    if (row_starts.data()[0] != 0 || row_starts.data()[n] != stored)
        throw nb::value_error("row starts do not span the values");
    for (std::size_t i = 0; i < n; ++i) {
        const Index begin = row_starts.data()[i], end = row_starts.data()[i + 1];
        if (begin > end || end > stored) throw nb::value_error("row starts must not decrease");
        for (Index k = begin; k < end; ++k) {
            const Index column = columns.data()[k];
            if (column < 0 || static_cast<std::size_t>(column) >= d || (k > begin && columns.data()[k - 1] >= column))
                throw nb::value_error("column indices must be sorted, unique and in range");
        }
    }
    check_slots(span(slots));
    return {span(values), span(columns), span(row_starts), span(slots), span_of(weights)};
}

template <class Index>
void bind_sparse(nb::class_<ExactSums>& c) {
    c.def(
        "add_sparse",
        [](ExactSums& self, Array<const double, 1> values, Array<const Index, 1> columns,
           Array<const Index, 1> row_starts, Array<const std::int32_t, 1> slots, Weights weights) {
            const SparseBatch<Index> batch = sparse_of<Index>(self, values, columns, row_starts, slots, weights);
            nb::gil_scoped_release unlocked;
            self.update([&](ExactState& state) { add_rows(state, batch); });
        },
        "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(), "slots"_a.noconvert(),
        "weights"_a.noconvert().none());
    c.def(
        "remove_sparse",
        [](ExactSums& self, Array<const double, 1> values, Array<const Index, 1> columns,
           Array<const Index, 1> row_starts, Array<const std::int32_t, 1> slots, Weights weights) {
            const SparseBatch<Index> batch = sparse_of<Index>(self, values, columns, row_starts, slots, weights);
            nb::gil_scoped_release unlocked;
            return refusal_tuple(self.update([&](ExactState& state) { return remove_rows(state, batch); }));
        },
        "values"_a.noconvert(), "columns"_a.noconvert(), "row_starts"_a.noconvert(), "slots"_a.noconvert(),
        "weights"_a.noconvert().none());
}

Quantizer quantizer_of(Array<const std::int32_t, 1> exponent, Array<const double, 1> origin,
                       Array<const std::uint8_t, 1> rounds, Array<const std::uint8_t, 1> mixed, std::size_t d) {
    if (exponent.size() != d || origin.size() != d || rounds.size() != d || mixed.size() != d)
        throw nb::value_error("a quantizer needs one entry of each array per feature");
    for (std::size_t j = 0; j < d; ++j)
        if (std::abs(exponent.data()[j]) > 1074 || !(std::abs(origin.data()[j]) < 0x1p53) ||
            origin.data()[j] != std::floor(origin.data()[j]))
            throw nb::value_error("a quantizer needs exponents from -1,074 to 1,074 and integer origins below 2^53");
    const auto copy = [](auto array) {
        return std::vector<std::remove_cv_t<std::remove_pointer_t<decltype(array.data())>>>(
            array.data(), array.data() + array.size());
    };
    return {copy(exponent), copy(origin), copy(rounds), copy(mixed)};
}

void check_places(const ExactState& state, std::span<const std::int32_t> places) {
    if (places.size() < state.slots.size()) throw nb::value_error("every slot needs a new slot number");
    for (const std::int32_t slot : state.early.slots)
        if (static_cast<std::size_t>(slot) >= places.size())
            throw nb::value_error("every slot needs a new slot number");
    check_slots(places);
}

void bind_operations(nb::class_<ExactSums>& c) {
    c.def(
        "copy", [](const ExactSums& self) { return new ExactSums(self.snapshot(), self.version()); },
        "Returns an independent copy; unchanged matrices are shared (copy-on-write).");
    c.def(
        "merge",
        [](ExactSums& self, const ExactSums& other, Array<const std::int32_t, 1> places, int sign, bool checked,
           unsigned n_threads) {
            const ExactState theirs = other.snapshot();
            check_places(theirs, span(places));
            nb::gil_scoped_release unlocked;
            return refusal_tuple(self.update([&](ExactState& state) {
                if (theirs.n_features != state.n_features) throw std::invalid_argument("widths disagree");
                return merge(state, theirs, span(places), sign, checked, n_threads);
            }));
        },
        "other"_a, "places"_a.noconvert(), "sign"_a, "checked"_a, "n_threads"_a = 1);
    c.def(
        "regrouped",
        [](const ExactSums& self, Array<const std::int32_t, 1> places, std::size_t n_slots, unsigned n_threads) {
            const ExactState state = self.snapshot();
            check_places(state, span(places));
            for (std::size_t s = 0; s < places.size(); ++s)
                if (places.data()[s] >= static_cast<std::int64_t>(n_slots))
                    throw nb::value_error("a new slot number is out of range");
            nb::gil_scoped_release unlocked;
            return new ExactSums(regrouped(state, span(places), n_slots, n_threads), self.version() + 1);
        },
        "places"_a.noconvert(), "n_slots"_a, "n_threads"_a = 1);
    c.def(
        "permute_features",
        [](const ExactSums& self, Array<const std::int64_t, 1> sources) {
            const ExactState state = self.snapshot();
            for (std::size_t j = 0; j < sources.size(); ++j)
                if (sources.data()[j] >= static_cast<std::int64_t>(state.n_features))
                    throw nb::value_error("a feature is out of range");
            nb::gil_scoped_release unlocked;
            return new ExactSums(permute_features(state, span(sources)), self.version() + 1);
        },
        "sources"_a.noconvert(),
        "Returns sums whose feature j is feature sources[j] of these sums, or zero if sources[j] is negative.");
    c.def(
        "decay",
        [](ExactSums& self, double factor, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            self.update([&](ExactState& state) { decay(state, factor, n_threads); });
        },
        "factor"_a, "n_threads"_a = 1);
    c.def(
        "drop",
        [](ExactSums& self, std::size_t slot) {
            self.update([&](ExactState& state) {
                if (slot < state.slots.size()) state.slots[slot].reset();
                EarlyRows early;
                early.sparse = state.early.sparse;
                for (std::size_t i = 0; i < state.early.slots.size(); ++i) {
                    if (static_cast<std::size_t>(state.early.slots[i]) == slot) continue;
                    const double* row = state.early.rows.data() + i * state.n_features;
                    early.rows.insert(early.rows.end(), row, row + state.n_features);
                    early.slots.push_back(state.early.slots[i]);
                    early.weights.push_back(state.early.weights[i]);
                }
                state.early = std::move(early);
            });
        },
        "slot"_a);
}

void bind_quantizer(nb::class_<ExactSums>& c) {
    c.def(
        "freeze_quantizer",
        [](ExactSums& self, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            self.update([&](ExactState& state) { freeze_quantizer(state, n_threads); });
        },
        "n_threads"_a = 1, "Fits the quantizer to the current rows. Later rows do not change it.");
    c.def(
        "fold_all",
        [](ExactSums& self, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            self.update([&](ExactState& state) { fold_all(state, n_threads); });
        },
        "n_threads"_a = 1, "Adds all pending rows to the sums.");
    c.def(
        "set_quantizer",
        [](ExactSums& self, Array<const std::int32_t, 1> exponent, Array<const double, 1> origin,
           Array<const std::uint8_t, 1> rounds, Array<const std::uint8_t, 1> mixed) {
            self.update([&](ExactState& state) {
                if (state.is_frozen) throw std::invalid_argument("the quantizer is already fixed");
                freeze_quantizer(state, quantizer_of(exponent, origin, rounds, mixed, state.n_features));
            });
        },
        "exponent"_a.noconvert(), "origin"_a.noconvert(), "rounds"_a.noconvert(), "mixed"_a.noconvert());
    c.def("quantizer", [](const ExactSums& self) {
        const ExactState state = self.snapshot();
        const Quantizer& quantizer = state.quantizer;
        return std::make_tuple(state.is_frozen, array_of(quantizer.exponent), array_of(quantizer.origin),
                               array_of(quantizer.rounds), array_of(quantizer.mixed));
    });
    c.def_prop_ro("n_features",
                  [](const ExactSums& self) { return self.read([](const ExactState& s) { return s.n_features; }); });
    c.def_prop_ro("version", &ExactSums::version);
    c.def_prop_ro("weight_exponent", [](const ExactSums& self) {
        return self.read([](const ExactState& s) { return s.weight_exponent; });
    });
    c.def(
        "has_rows",
        [](const ExactSums& self, std::size_t n_slots) {
            return self.read([&](const ExactState& state) {
                std::vector<bool> found(n_slots, false);
                for (std::size_t s = 0; s < std::min(n_slots, state.slots.size()); ++s)
                    found[s] = state.slots[s] != nullptr;
                for (const std::int32_t slot : state.early.slots)
                    if (static_cast<std::size_t>(slot) < n_slots) found[static_cast<std::size_t>(slot)] = true;
                return found;
            });
        },
        "n_slots"_a);
    c.def(
        "has_sums",
        [](const ExactSums& self, std::size_t slot) {
            return self.read(
                [&](const ExactState& s) { return slot < s.slots.size() && s.slots[slot] && s.slots[slot]->sums; });
        },
        "slot"_a, "Returns whether a class has sums, in addition to stored rows.");
    c.def(
        "count",
        [](const ExactSums& self, std::size_t slot) {
            return self.read([&](const ExactState& s) { return count_of(s, slot).scaled(s.weight_exponent); });
        },
        "slot"_a);
    c.def_prop_ro("n_bytes", [](const ExactSums& self) {
        return self.read([](const ExactState& state) {
            std::size_t n = (state.early.rows.size() + 2 * state.early.slots.size()) * sizeof(double);
            for (const auto& block : state.slots)
                if (block)
                    n += (block->sums ? block->sums->n_bytes() : 0) +
                         (block->partial_sums ? block->partial_sums->n_bytes() : 0) +
                         (block->rows.capacity() + block->weights.capacity()) * sizeof(double);
            return n;
        });
    });
}

void bind_state(nb::class_<ExactSums>& c) {
    c.def("get_early", [](const ExactSums& self) {
        const EarlyRows early = self.snapshot().early;
        return std::make_tuple(array_of(early.rows), array_of(early.weights), array_of(early.slots), early.sparse);
    });
    c.def(
        "get_slot",
        [](const ExactSums& self, std::size_t slot) -> nb::object {
            const ExactState state = self.snapshot();
            if (slot >= state.slots.size() || !state.slots[slot]) return nb::none();
            const ExactBlock& block = *state.slots[slot];
            if (!block.sums) return nb::make_tuple(nb::none(), 0, array_of(block.rows), array_of(block.weights));
            const auto number = static_cast<std::int32_t>(slot);  // the sums that are written include pending rows
            std::size_t each = 0;
            nb::object sums = bytes_of(folded(state, {&number, 1}, 1).formed().to_bytes(&each));
            return nb::make_tuple(sums, each, zeros<double, 1>({0}), zeros<std::int64_t, 1>({0}));
        },
        "slot"_a);
    c.def("set_early", [](ExactSums& self, Array<const double, 1> rows, Array<const std::int64_t, 1> weights,
                          Array<const std::int32_t, 1> slots, bool sparse) {
        check_slots(span(slots));
        self.update([&](ExactState& state) {
            if (state.is_frozen || slots.size() != weights.size() || rows.size() != slots.size() * state.n_features)
                throw std::invalid_argument("early rows have the wrong shape");
            for (std::size_t i = 0; i < rows.size(); ++i)
                if (!std::isfinite(rows.data()[i])) throw std::invalid_argument("rows must be finite");
            state.early = {{rows.data(), rows.data() + rows.size()},
                           {weights.data(), weights.data() + weights.size()},
                           {slots.data(), slots.data() + slots.size()},
                           sparse};
        });
    });
    c.def(
        "set_slot",
        [](ExactSums& self, std::size_t slot, std::optional<nb::bytes> sums, std::size_t each,
           Array<const double, 1> rows, Array<const std::int64_t, 1> weights) {
            self.update([&](ExactState& state) {
                if (!state.is_frozen || slot >= (1u << 24) || rows.size() != weights.size() * state.n_features)
                    throw std::invalid_argument("pending rows have the wrong shape");
                auto block = std::make_shared<ExactBlock>();
                for (std::size_t i = 0; i < rows.size(); ++i)
                    if (!(std::fabs(rows.data()[i]) <= kTwoDigits) || rows.data()[i] != std::floor(rows.data()[i]))
                        throw std::invalid_argument("pending rows must be integers");
                block->rows.assign(rows.data(), rows.data() + rows.size());
                block->weights.assign(weights.data(), weights.data() + weights.size());
                if (sums)
                    block->sums = std::make_shared<Triangle>(Triangle::from_bytes(
                        state.n_features + 1, {reinterpret_cast<const std::uint8_t*>(sums->c_str()), sums->size()},
                        each));
                if (state.slots.size() <= slot) state.slots.resize(slot + 1);
                state.slots[slot] = std::move(block);
            });
        },
        "slot"_a, "sums"_a.none(), "each"_a, "rows"_a, "weights"_a);
    c.def("set_weight_exponent", [](ExactSums& self, int exponent) {
        if (exponent != 0 && exponent != -kWeightFractionBits)
            throw nb::value_error("weights are integers or multiples of 2^-20");
        self.update([&](ExactState& state) { state.weight_exponent = exponent; });
    });
}

void bind_view(nb::module_& m) {
    nb::class_<ExactView>(
        m, "ExactView",
        "Sums of some classes as correctly rounded doubles, relative to an origin near the mean of their rows.")
        .def(
            "__init__",
            [](ExactView* self, const ExactSums& sums, SlotGroups classes, unsigned n_threads) {
                for (const auto& slots : classes) check_present(slots);
                nb::gil_scoped_release unlocked;
                new (self) ExactView(sums.view(std::move(classes), n_threads));
            },
            "sums"_a, "classes"_a, "n_threads"_a = 1, "`classes` lists the slots of each class, one or several.")
        .def_prop_ro(
            "origin", [](const ExactView& self) { return array_of(self.origin()); }, nb::rv_policy::automatic)
        .def_prop_ro(
            "units", [](const ExactView& self) { return array_of(self.units()); }, nb::rv_policy::automatic)
        .def_prop_ro(
            "variance", [](const ExactView& self) { return array_of(self.variance()); }, nb::rv_policy::automatic)
        .def("count", &ExactView::count, "k"_a)
        .def(
            "sums",
            [](const ExactView& self, std::size_t k) {
                auto out = zeros<double, 1>({self.origin().size()});
                self.sums(k, out.data());
                return out;
            },
            "k"_a)
        .def(
            "matrix",
            [](const ExactView& self, std::size_t k) {
                const std::size_t size = self.origin().size() + 1;
                auto out = zeros<double, 2>({size, size});
                nb::gil_scoped_release unlocked;
                self.matrix(k, out.data());
                return out;
            },
            "k"_a)
        .def(
            "factor",
            [](const ExactView& self, std::size_t k, Array<const double, 1> scale) {
                const std::size_t size = self.origin().size() + 1;
                require(scale.size() == size && k < self.n_classes(), "ExactView.factor: array shapes disagree");
                std::vector<double> rows;
                {
                    nb::gil_scoped_release unlocked;
                    rows = self.factor(k, span(scale));
                }
                auto out = zeros<double, 2>({rows.size() / size, size});
                std::copy(rows.begin(), rows.end(), out.data());
                return out;
            },
            "k"_a, "scale"_a.noconvert(), "Returns the pivoted Cholesky factor of the matrix of a class, row by row.")
        .def(
            "is_semidefinite",
            [](const ExactView& self, std::size_t k, double slack) {
                require(k < self.n_classes(), "ExactView.is_semidefinite: there is no such class");
                nb::gil_scoped_release unlocked;
                return self.is_semidefinite(k, slack);
            },
            "k"_a, "slack"_a, "Returns whether the correlation matrix of a class has no eigenvalue below -slack.")
        .def("total",
             [](const ExactView& self) {
                 const std::size_t size = self.origin().size() + 1;
                 auto out = zeros<double, 2>({size, size});
                 nb::gil_scoped_release unlocked;
                 self.total(out.data());
                 return out;
             })
        .def(
            "canonical",
            [](const ExactView& self, std::size_t k) {
                const auto bytes = [&] {
                    nb::gil_scoped_release unlocked;
                    return self.canonical(k);
                }();
                return bytes_of(bytes);
            },
            "k"_a);
}

}  // namespace

void bind_exact_sums(nb::module_& m) {
    m.attr("QUANTIZER_ROWS") = kQuantizerRows;
    m.attr("WEIGHT_FRACTION_BITS") = kWeightFractionBits;
    m.attr("LARGEST_VALUE") = kLargestValue;
    nb::class_<ExactSums> c(m, "ExactSums", "Class-wise sums of products in exact integer arithmetic.");
    c.def(
        "__init__",
        [](ExactSums* self, std::size_t n_features) {
            ExactState state;
            state.n_features = n_features;
            new (self) ExactSums(std::move(state));
        },
        "n_features"_a);
    bind_dense<double>(c);
    bind_dense<float>(c);
    bind_sparse<std::int32_t>(c);
    bind_sparse<std::int64_t>(c);
    bind_operations(c);
    bind_quantizer(c);
    bind_state(c);
    bind_view(m);
}

}  // namespace steelyard::bind
