#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "arrays.hpp"
#include "kernels/kernels.hpp"
#include "kernels/product_shapley.hpp"
#include "neighbors.hpp"

namespace steelyard::bind {

namespace {

constexpr const char* kKindNames[] = {"linear",  "polynomial",       "rbf",       "laplacian",
                                      "sigmoid", "squared_distance", "cityblock", "lookup"};

KernelKind kind_of(const std::string& name) {
    for (int kind = 0; kind < 5; ++kind)
        if (name == kKindNames[kind]) return static_cast<KernelKind>(kind);
    throw nb::value_error(("KernelSpec: unknown native kernel '" + name + "'").c_str());
}

// Table of kernel values that keeps their NumPy array alive.
struct BoundTable : KernelTable {
    nb::object array;
};

void bind_table(nb::module_& m) {
    nb::class_<BoundTable>(m, "KernelTable",
                           "Table of kernel values of stored objects, which are identified by slot numbers.")
        .def(nb::init<>())
        .def(
            "set",
            [](BoundTable& self, Array<const double, 2> values) {
                if (values.shape(0) != values.shape(1))
                    throw nb::value_error("KernelTable.set: expected a square matrix");
                self.array = nb::cast(values);
                self.values = values.data();
                self.n = values.shape(0);
            },
            "values"_a.noconvert(), "Replace the table by this array, which is not copied.");
}

void bind_spec(nb::module_& m) {
    nb::class_<KernelSpec>(m, "KernelSpec", "Kernel function and its parameters, as native learners use it.")
        .def(
            "__init__",
            [](KernelSpec* self, const std::string& kind, double gamma, double coef0, int degree) {
                new (self) KernelSpec{kind_of(kind), gamma, coef0, degree};
            },
            "kind"_a, "gamma"_a = 1.0, "coef0"_a = 0.0, "degree"_a = 3)
        .def_static(
            "lookup", [](const BoundTable& table) { return KernelSpec{.kind = KernelKind::lookup, .table = &table}; },
            "table"_a, nb::keep_alive<0, 1>(),
            "Return a kernel whose rows are slot numbers of the table. The table must exist as long as a learner uses "
            "it.")
        .def_prop_ro("kind", [](const KernelSpec& spec) { return kKindNames[static_cast<int>(spec.kind)]; })
        .def_ro("gamma", &KernelSpec::gamma)
        .def_ro("coef0", &KernelSpec::coef0)
        .def_ro("degree", &KernelSpec::degree);
}

template <class T>
void bind_blocks(nb::module_& m) {
    m.def(
        "kernel_block",
        [](const KernelSpec& spec, Array<const T, 2> X, Array<const T, 2> Z, Array<T, 2> out, unsigned n_threads) {
            require(X.shape(1) == Z.shape(1) && out.shape(0) == X.shape(0) && out.shape(1) == Z.shape(0),
                    "kernel_block: array shapes disagree");
            nb::gil_scoped_release unlocked;
            kernel_block<T>(spec, rows<T>(X), rows<T>(Z), out.data(), Z.shape(0), n_threads);
        },
        "spec"_a, "X"_a.noconvert(), "Z"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[i, j] with k(X[i], Z[j]).");
    m.def(
        "kernel_matrix",
        [](const KernelSpec& spec, Array<const T, 2> X, Array<T, 2> out, unsigned n_threads) {
            require(out.shape(0) == X.shape(0) && out.shape(1) == X.shape(0), "kernel_matrix: array shapes disagree");
            nb::gil_scoped_release unlocked;
            kernel_matrix<T>(spec, rows<T>(X), out.data(), X.shape(0), n_threads);
        },
        "spec"_a, "X"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[i, j] with k(X[i], X[j]), exactly symmetric.");
    m.def(
        "kernel_diagonal",
        [](const KernelSpec& spec, Array<const T, 2> X, Array<T, 1> out) {
            require(out.size() == X.shape(0), "kernel_diagonal: array shapes disagree");
            nb::gil_scoped_release unlocked;
            kernel_diagonal<T>(spec, rows<T>(X), out.data());
        },
        "spec"_a, "X"_a.noconvert(), "out"_a.noconvert(), "Fill out[i] with k(X[i], X[i]).");
    m.def(
        "kernel_from_products",
        [](const KernelSpec& spec, Array<T, 2> products, std::optional<Array<const T, 1>> x_norms,
           std::optional<Array<const T, 1>> z_norms, unsigned n_threads) {
            const std::size_t n_x = products.shape(0), n_z = products.shape(1);
            require((!x_norms || x_norms->size() == n_x) && (!z_norms || z_norms->size() == n_z),
                    "kernel_from_products: array shapes disagree");
            require(spec.kind != KernelKind::laplacian,
                    "kernel_from_products: laplacian is not a function of products");
            require(spec.kind != KernelKind::rbf || (x_norms && z_norms), "kernel_from_products: rbf needs the norms");
            nb::gil_scoped_release unlocked;
            kernel_from_products<T>(spec, products.data(), n_x, n_z, n_z, x_norms ? x_norms->data() : nullptr,
                                    z_norms ? z_norms->data() : nullptr, n_threads);
        },
        "spec"_a, "products"_a.noconvert(), "x_norms"_a.noconvert().none(), "z_norms"_a.noconvert().none(),
        "n_threads"_a = 1, "Convert products[i, j] = X[i]'Z[j] to kernel values in place. rbf needs squared norms.");
}

NumpyArray<double, 2> bound_neighbor_scores(const KernelSpec& spec, Array<const double, 2> X,
                                            Array<const double, 2> vectors, Array<const std::int64_t, 1> places,
                                            std::size_t n_classes, std::size_t n_neighbors) {
    require(X.shape(1) == vectors.shape(1), "neighbor_scores: array shapes disagree");
    const Neighbors neighbors = checked_neighbors(spec, vectors, places, n_classes, n_neighbors);
    auto out = zeros<double, 2>({X.shape(0), neighbors.n_scores()});
    nb::gil_scoped_release unlocked;
    neighbor_scores(neighbors, rows(X), out.data());
    return out;
}

void bind_neighbors(nb::module_& m) {
    m.def("neighbor_scores", &bound_neighbor_scores, "spec"_a, "X"_a.noconvert(), "vectors"_a.noconvert(),
          "places"_a.noconvert(), "n_classes"_a, "n_neighbors"_a,
          "Return the log-odds of the second of two classes, or the logarithm of the votes of each class, by a vote of "
          "the nearest vectors.");
}

template <class T>
void bind_packed(nb::module_& m, const char* name) {
    using Packed = PackedRows<T, double>;
    const auto require_row = [](const Packed& self, std::size_t i) {
        if (i >= self.size()) throw nb::index_error("PackedRows: row index out of range");
    };
    nb::class_<Packed>(m, name, "Vectors in a memory layout for fast kernel values. Sums are computed in float64.")
        .def(nb::init<std::size_t, std::size_t>(), "n_features"_a, "capacity"_a = 0)
        .def("__len__", &Packed::size)
        .def_prop_ro("n_features", &Packed::n_features)
        .def(
            "append",
            [](Packed& self, Array<const T, 2> X) {
                require(X.shape(1) == self.n_features(), "PackedRows.append: wrong number of features");
                self.reserve(self.size() + X.shape(0));
                for (std::size_t i = 0; i < X.shape(0); ++i) self.append(X.data() + i * X.shape(1));
            },
            "X"_a.noconvert())
        .def(
            "replace",
            [require_row](Packed& self, std::size_t i, Array<const T, 1> row) {
                require_row(self, i);
                require(row.size() == self.n_features(), "PackedRows.replace: wrong number of features");
                self.replace(i, row.data());
            },
            "i"_a, "row"_a.noconvert())
        .def(
            "swap_remove",
            [require_row](Packed& self, std::size_t i) {
                require_row(self, i);
                self.swap_remove(i);
            },
            "i"_a, "Remove row i; the last row moves to its position.")
        .def("to_rows",
             [](const Packed& self) {
                 auto X = zeros<T, 2>({self.size(), self.n_features()});
                 for (std::size_t i = 0; i < self.size(); ++i) self.copy_row(i, X.data() + i * self.n_features());
                 return X;
             })
        .def(
            "kernel_rows",
            [](const Packed& self, const KernelSpec& spec, Array<const T, 2> X, Array<double, 2> out,
               unsigned n_threads) {
                require(X.shape(1) == self.n_features() && out.shape(0) == X.shape(0) && out.shape(1) == self.size(),
                        "PackedRows.kernel_rows: array shapes disagree");
                nb::gil_scoped_release unlocked;
                kernel_rows(spec, rows<T>(X), self, out.data(), self.size(), n_threads);
            },
            "spec"_a, "X"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1, "Fill out[i, j] with k(X[i], z_j).")
        .def(
            "kernel_sums",
            [](const Packed& self, const KernelSpec& spec, Array<const T, 2> X, Array<const double, 1> weights,
               Array<double, 1> out, unsigned n_threads) {
                require(X.shape(1) == self.n_features() && out.size() == X.shape(0) && weights.size() == self.size(),
                        "PackedRows.kernel_sums: array shapes disagree");
                nb::gil_scoped_release unlocked;
                kernel_sums(spec, rows<T>(X), self, weights.data(), out.data(), n_threads);
            },
            "spec"_a, "X"_a.noconvert(), "weights"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
            "Fill out[i] with the sum over j of weights[j] k(X[i], z_j), without storing the kernel matrix.");
}

NumpyArray<double, 3> bound_product_shapley(Array<const double, 3> factors, Array<const double, 2> reference,
                                            Array<const double, 2> coef, unsigned n_threads) {
    const std::size_t n_rows = factors.shape(0), n_vectors = factors.shape(1), n_columns = factors.shape(2);
    require(reference.shape(0) == n_vectors && reference.shape(1) == n_columns && coef.shape(1) == n_vectors,
            "product_shapley: array shapes disagree");
    auto out = zeros<double, 3>({n_rows, n_columns, coef.shape(0)});
    nb::gil_scoped_release unlocked;
    product_shapley({factors.data(), reference.data(), coef.data(), n_rows, n_vectors, n_columns, coef.shape(0)},
                    out.data(), n_threads);
    return out;
}

}  // namespace

void bind_kernels(nb::module_& m) {
    bind_table(m);
    bind_spec(m);
    bind_neighbors(m);
    bind_blocks<double>(m);
    bind_blocks<float>(m);
    bind_packed<double>(m, "PackedRows64");
    bind_packed<float>(m, "PackedRows32");
    m.def("product_shapley", &bound_product_shapley, "factors"_a.noconvert(), "reference"_a.noconvert(),
          "coef"_a.noconvert(), "n_threads"_a = 1,
          "Return the Shapley values of the columns in sums of product kernels, shape (n_rows, n_columns, n_scores).");
}

}  // namespace steelyard::bind
