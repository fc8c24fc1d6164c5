#include <nanobind/stl/pair.h>

#include <utility>

#include "arrays.hpp"
#include "enclosing/body_distances.hpp"
#include "enclosing/enclosing.hpp"

namespace steelyard::bind {

namespace {

// Returns a NumPy array that owns the memory of the vector.
NumpyArray<double, 1> as_array(std::vector<double>&& values) {
    auto* kept = new std::vector<double>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return NumpyArray<double, 1>(kept->data(), {kept->size()}, owner);
}

nb::typed<nb::dict, nb::str, nb::any> solve_ball(const KernelSpec& spec, Array<const double, 2> X,
                                                 Array<const double, 1> bounds, double tolerance,
                                                 std::size_t cache_bytes, std::size_t max_steps, unsigned n_threads) {
    const std::size_t n = X.shape(0);
    if (bounds.size() != n) throw nb::value_error("enclosing_ball: array shapes disagree");
    if (n == 0 || n > INT32_MAX) throw nb::value_error("enclosing_ball: expected 1 to 2^31 - 1 rows");
    Ball ball;
    {
        nb::gil_scoped_release unlocked;
        ball = enclosing_ball({spec, {X.data(), n, X.shape(1)}, span(bounds)},
                              {tolerance, cache_bytes, max_steps, n_threads});
    }
    nb::dict answer;
    answer["alpha"] = as_array(std::move(ball.alpha));
    answer["squared_distances"] = as_array(std::move(ball.squared_distances));
    answer["squared_radius"] = ball.squared_radius;
    answer["gap"] = ball.gap;
    answer["steps"] = ball.steps;
    return answer;
}

using Table = Array<const double, 2>;
using Vector = Array<const double, 1>;
using Starts = Array<const std::size_t, 1>;
using NearestArrays = std::pair<NumpyArray<std::int64_t, 1>, NumpyArray<double, 1>>;

void check_bodies(const Table& X, const Table& centers) {
    if (X.shape(1) != centers.shape(1)) throw nb::value_error("enclosing bodies: array shapes disagree");
}

void check_bodies(const Table& X, const Table& axes, const Vector& offsets, const Starts& starts) {
    if (X.shape(1) != axes.shape(1) || offsets.size() != axes.shape(0) || starts.size() == 0)
        throw nb::value_error("enclosing bodies: array shapes disagree");
    for (std::size_t b = 0; b + 1 < starts.size(); ++b)
        if (starts.data()[b] > starts.data()[b + 1]) throw nb::value_error("enclosing bodies: starts must ascend");
    if (starts.data()[starts.size() - 1] > axes.shape(0))
        throw nb::value_error("enclosing bodies: starts exceed the number of axes");
}

void check_radii(const Vector& radii, std::size_t n_bodies) {
    if (n_bodies == 0 || radii.size() != n_bodies)
        throw nb::value_error("enclosing bodies: expected one radius per body");
}

NearestArrays room_for_nearest(std::size_t n) { return {zeros<std::int64_t, 1>({n}), zeros<double, 1>({n})}; }

NumpyArray<double, 2> distances_to_spheres(Table X, Table centers, unsigned n_threads) {
    check_bodies(X, centers);
    auto out = zeros<double, 2>({X.shape(0), centers.shape(0)});
    nb::gil_scoped_release unlocked;
    sphere_distances(rows<double>(X), rows<double>(centers), out.data(), n_threads);
    return out;
}

NumpyArray<double, 2> distances_to_ellipsoids(Table X, Table axes, Vector offsets, Starts starts, unsigned n_threads) {
    check_bodies(X, axes, offsets, starts);
    auto out = zeros<double, 2>({X.shape(0), starts.size() - 1});
    nb::gil_scoped_release unlocked;
    ellipsoid_distances(rows<double>(X), rows<double>(axes), span(offsets), span(starts), out.data(), n_threads);
    return out;
}

NearestArrays find_nearest_sphere(Table X, Table centers, Vector radii, unsigned n_threads) {
    check_bodies(X, centers);
    check_radii(radii, centers.shape(0));
    NearestArrays out = room_for_nearest(X.shape(0));
    nb::gil_scoped_release unlocked;
    nearest_sphere(rows<double>(X), rows<double>(centers), span(radii), {out.first.data(), out.second.data()},
                   n_threads);
    return out;
}

NearestArrays find_nearest_ellipsoid(Table X, Table axes, Vector offsets, Starts starts, Vector radii,
                                     unsigned n_threads) {
    check_bodies(X, axes, offsets, starts);
    check_radii(radii, starts.size() - 1);
    NearestArrays out = room_for_nearest(X.shape(0));
    nb::gil_scoped_release unlocked;
    nearest_ellipsoid(rows<double>(X), rows<double>(axes), span(offsets), span(starts), span(radii),
                      {out.first.data(), out.second.data()}, n_threads);
    return out;
}

}  // namespace

void bind_enclosing(nb::module_& m) {
    m.def("enclosing_ball", &solve_ball, "spec"_a, "X"_a.noconvert(), "bounds"_a.noconvert(), "tolerance"_a,
          "cache_bytes"_a, "max_steps"_a, "n_threads"_a = 1,
          "Return the smallest ball around the rows in the feature space of the kernel. The weight of each row is "
          "between 0 and its bound. Bounds must be positive and sum to at least 1.");
    m.def(
        "all_within",
        [](Table X, double limit, unsigned n_threads) {
            nb::gil_scoped_release unlocked;
            return all_within({X.data(), X.size()}, limit, n_threads);
        },
        "X"_a.noconvert(), "limit"_a, "n_threads"_a = 1, "Return whether all values are numbers from -limit to limit.");
    m.def("sphere_distances", &distances_to_spheres, "X"_a.noconvert(), "centers"_a.noconvert(), "n_threads"_a = 1,
          "Return squared distances of all rows to all centers.");
    m.def("ellipsoid_distances", &distances_to_ellipsoids, "X"_a.noconvert(), "axes"_a.noconvert(),
          "offsets"_a.noconvert(), "starts"_a.noconvert(), "n_threads"_a = 1,
          "Return squared distances of all rows x to ellipsoids: sums of (axis'x - offset)^2 over the axes of each "
          "ellipsoid.");
    m.def("nearest_sphere", &find_nearest_sphere, "X"_a.noconvert(), "centers"_a.noconvert(), "radii"_a.noconvert(),
          "n_threads"_a = 1, "Return for each row the ball with the smallest distance / radius, and this ratio.");
    m.def("nearest_ellipsoid", &find_nearest_ellipsoid, "X"_a.noconvert(), "axes"_a.noconvert(),
          "offsets"_a.noconvert(), "starts"_a.noconvert(), "radii"_a.noconvert(), "n_threads"_a = 1,
          "Return for each row the ellipsoid with the smallest distance / radius, and this ratio.");
}

}  // namespace steelyard::bind
