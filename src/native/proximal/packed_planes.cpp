#include "proximal/packed_planes.hpp"

#include <algorithm>

#include "simd/simd.hpp"

namespace steelyard {

namespace {

void one_plane(const ScoreLoops& loops, Rows<double> rows, const double* normal, double* out) {
    loops.one_plane_f64(rows.data, rows.n_rows, rows.n_features, normal, out);
}
void one_plane(const ScoreLoops& loops, Rows<float> rows, const double* normal, double* out) {
    loops.one_plane_f32(rows.data, rows.n_rows, rows.n_features, normal, out);
}
void many_planes(const ScoreLoops& loops, Rows<double> rows, const double* panel, std::size_t panels, double* out,
                 std::size_t stride) {
    loops.many_planes_f64(rows.data, rows.n_rows, rows.n_features, panel, panels, out, stride);
}
void many_planes(const ScoreLoops& loops, Rows<float> rows, const double* panel, std::size_t panels, double* out,
                 std::size_t stride) {
    loops.many_planes_f32(rows.data, rows.n_rows, rows.n_features, panel, panels, out, stride);
}

}  // namespace

// Packs the normals. The padding after the last plane is zero.
PackedPlanes::PackedPlanes(std::span<const double> normals, std::size_t n_planes, std::size_t n_features)
    : loops_(steelyard::loops().score), n_planes_(n_planes), n_features_(n_features) {
    if (n_planes_ == 1) {
        numbers_.assign(normals.begin(), normals.end());
        return;
    }
    n_panels_ = (n_planes_ + loops_.width - 1) / loops_.width;
    numbers_.assign(n_panels_ * n_features * loops_.width, 0.0);
    for (std::size_t p = 0; p < n_planes_; ++p)
        for (std::size_t k = 0; k < n_features; ++k)
            numbers_[(p / loops_.width * n_features + k) * loops_.width + p % loops_.width] =
                normals[p * n_features + k];
}

template <class T>
void PackedPlanes::products(Rows<T> rows, double* out) const {
    if (n_planes_ == 1) return one_plane(loops_, rows, numbers_.data(), out);
    for (std::size_t panel = 0; panel < n_panels_; panel += loops_.group)
        many_planes(loops_, rows, numbers_.data() + panel * n_features_ * loops_.width,
                    std::min(loops_.group, n_panels_ - panel), out + panel * loops_.width, stride());
}

template void PackedPlanes::products(Rows<double>, double*) const;
template void PackedPlanes::products(Rows<float>, double*) const;

}  // namespace steelyard
