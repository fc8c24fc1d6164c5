#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "maps.hpp"
#include "neighbors.hpp"
#include "tree_scorer.hpp"
#include "trees/row_experts.hpp"

namespace steelyard::bind {

namespace {

using Vector = Array<const double, 1>;
using Matrix = Array<const double, 2>;
using RankArrays = std::tuple<Matrix, Matrix, Matrix>;  // knots, values, slopes
using MapArguments = std::tuple<std::string, Vector, Vector, Matrix, Vector, double, double, double>;
using Packed = PackedRows<double, double>;

// Experts and the arrays and objects that they reference.
class BoundRowExperts {
  public:
    BoundRowExperts(std::size_t n_experts, std::size_t n_features, const std::optional<RankArrays>& ranks,
                    const std::optional<MapArguments>& map)
        : n_experts_(n_experts) {
        experts_.n_features = n_features;
        if (ranks) {
            const auto& [knots, values, slopes] = *ranks;
            for (const Matrix& part : {knots, values, slopes}) {
                require(part.shape(0) == knots.shape(0) && part.shape(0) > 0 && part.shape(1) == n_features, kUnlike);
                keep(part);
            }
            experts_.ranks = {knots.data(), values.data(), slopes.data(), knots.shape(0)};
        }
        if (map) {
            require(ranks.has_value(), "RowExperts: a map needs ranks");
            std::apply(
                [this](const std::string& kind, const Vector& shift, const Vector& scale, const Matrix& weights,
                       const Vector& starts, double amplitude, double step, double ceiling) {
                    experts_.map = checked_map(kind, shift, scale, weights, starts, amplitude, step, ceiling);
                    keep(shift), keep(scale), keep(weights), keep(starts);
                },
                *map);
            require(experts_.map->n_features() == n_features, kUnlike);
        }
    }

    void add_plane(std::size_t expert, bool is_mapped, Vector normal, double intercept) {
        check(expert);
        require(!is_mapped || experts_.map, "RowExperts: there is no map");
        require(normal.size() == (is_mapped ? experts_.map->n_outputs() : experts_.n_features), kUnlike);
        keep(normal);
        experts_.planes.push_back({expert, is_mapped, span(normal), intercept});
    }

    void add_machine(std::size_t expert, const KernelSpec& spec, nb::object packed, Vector coef, double intercept) {
        check(expert);
        const auto& vectors = nb::cast<const Packed&>(packed);
        require(experts_.ranks && vectors.n_features() == experts_.n_features && vectors.size() == coef.size() &&
                    spec.kind != KernelKind::lookup,
                kUnlike);
        keep(coef);
        kept_.push_back(std::move(packed));
        n_vectors_.push_back(vectors.size());
        experts_.machines.push_back({expert, spec, &vectors, coef.data(), intercept});
    }

    void add_neighbors(std::size_t expert, const KernelSpec& spec, Matrix vectors, Array<const std::int64_t, 1> places,
                       std::size_t n_neighbors) {
        check(expert);
        require(experts_.ranks && vectors.shape(1) == experts_.n_features, kUnlike);
        const Neighbors neighbors = checked_neighbors(spec, vectors, places, 2, n_neighbors);
        keep(vectors), keep(places);
        experts_.votes.push_back({expert, neighbors});
    }

    void add_trees(std::size_t expert, nb::object trees) {
        check(expert);
        const auto& bound = nb::cast<const BoundTrees&>(trees);
        require(bound.scorer().trees().n_outputs() == 1 && bound.n_features() == experts_.n_features, kUnlike);
        kept_.push_back(std::move(trees));
        experts_.trees.push_back({expert, &bound.scorer()});
    }

    std::tuple<NumpyArray<double, 3>, NumpyArray<double, 2>> scores(Matrix X, Vector constants,
                                                                    unsigned n_threads) const {
        require(X.shape(1) == experts_.n_features && constants.size() == n_experts_, kUnlike);
        for (std::size_t i = 0; i < n_vectors_.size(); ++i)
            require(experts_.machines[i].vectors->size() == n_vectors_[i], "RowExperts: vectors have changed");
        const std::size_t n_rows = X.shape(0);
        auto out = zeros<double, 3>({n_rows, n_experts_, 1});
        auto ranks = zeros<double, 2>({n_rows, experts_.ranks ? experts_.n_features : 0});
        nb::gil_scoped_release unlocked;
        for (std::size_t i = 0; i < n_rows; ++i) std::ranges::copy(span(constants), out.data() + i * n_experts_);
        experts_.score({X.data(), n_rows, experts_.n_features}, ranks.data(), out.data(), n_experts_, n_threads);
        return {out, ranks};
    }

  private:
    static constexpr const char* kUnlike = "RowExperts: array shapes disagree";

    void check(std::size_t expert) const { require(expert < n_experts_, "RowExperts: there is no such expert"); }
    template <class A>
    void keep(const A& array) {
        kept_.push_back(nb::cast(array));
    }

    RowExperts experts_;
    std::size_t n_experts_;
    std::vector<std::size_t> n_vectors_;
    std::vector<nb::object> kept_;
};

}  // namespace

void bind_row_experts(nb::module_& m) {
    nb::class_<BoundRowExperts>(m, "RowExperts",
                                "Binary experts that score rows in one call. The arrays must not change.")
        .def(nb::init<std::size_t, std::size_t, const std::optional<RankArrays>&, const std::optional<MapArguments>&>(),
             "n_experts"_a, "n_features"_a, "ranks"_a.none(), "map"_a.none())
        .def("add_plane", &BoundRowExperts::add_plane, "expert"_a, "is_mapped"_a, "normal"_a.noconvert(), "intercept"_a)
        .def("add_machine", &BoundRowExperts::add_machine, "expert"_a, "spec"_a, "packed"_a, "coef"_a.noconvert(),
             "intercept"_a)
        .def("add_neighbors", &BoundRowExperts::add_neighbors, "expert"_a, "spec"_a, "vectors"_a.noconvert(),
             "places"_a.noconvert(), "n_neighbors"_a)
        .def("add_trees", &BoundRowExperts::add_trees, "expert"_a, "trees"_a)
        .def("scores", &BoundRowExperts::scores, "X"_a.noconvert(), "constants"_a.noconvert(), "n_threads"_a = 1,
             "Return the scores of rows and the ranks of rows. The score of an expert that was not added is its value "
             "in `constants`.");
}

}  // namespace steelyard::bind
