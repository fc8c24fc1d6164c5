// Conversion of feature maps from their Python arguments.
#pragma once

#include <string>

#include "arrays.hpp"
#include "kernels/feature_maps.hpp"

namespace steelyard::bind {

inline MapKind kind_named(const std::string& name) {
    if (name == "cosine") return MapKind::cosine;
    if (name == "rectified") return MapKind::rectified;
    if (name == "sigmoid") return MapKind::sigmoid;
    if (name == "halving") return MapKind::halving;
    if (name == "halving_2") return MapKind::halving_2;
    throw nb::value_error("map_rows: unknown kind");
}

inline FeatureMap checked_map(const std::string& kind, const Array<const double, 1>& shift,
                              const Array<const double, 1>& scale, const Array<const double, 2>& weights,
                              const Array<const double, 1>& starts, double amplitude, double step, double ceiling) {
    if (scale.size() != shift.size() || weights.shape(0) != shift.size() || weights.shape(1) != starts.size())
        throw nb::value_error("map_rows: array shapes disagree");
    return {{kind_named(kind), amplitude, step, ceiling}, span(shift), span(scale), weights.data(), span(starts)};
}

}  // namespace steelyard::bind
