// The hot loops of feature maps, whose results have the same bits at every level.
#pragma once

#include <cstddef>

namespace steelyard {

// Outputs that are computed together: a multiple of every level's tile.
constexpr std::size_t kMapBlock = 64;

// A finished value is quantum * round(...): an integer times a power of two.
//
//   cosine     round(amplitude * cos(2 pi t)),             t = start + sum of x_k w_k, in turns
//   rectified  round(amplitude * min(max(t, 0), ceiling)),  t = start + sum of x_k w_k; amplitude a power of two
//   halving    round(amplitude * 2^-t),                     t = |x - w|_1; amplitude a power of two
//   halving_2  round(amplitude * 2^-t),                     t = |x - w|_2; amplitude a power of two
enum class MapKind { cosine, rectified, halving, halving_2 };

struct MapSpec {
    MapKind kind = MapKind::cosine;
    double amplitude = 1.0;
    double quantum = 1.0;
    double ceiling = 1.0;
};

// Weights of a block of outputs: those of feature k stand at weights + k * stride, those of its outputs side by
// side; `starts` is read by the first two kinds alone.
struct MapBlock {
    const double* weights;
    std::size_t stride;
    const double* starts;
};

// Every sum goes over the features from first to last. The numbers are such that their products are exact (24 bits
// times 24 for the first two kinds, squares of 26 for halving_2), so that it does not matter whether a level fuses
// products and sums; all other products are kept from being fused.
struct MapLoops {
    // out[i * ld + c] for n rows of d features and a whole block of outputs.
    void (*block)(const MapSpec& spec, const double* X, std::size_t n, std::size_t d, MapBlock block, double* out,
                  std::size_t ld);
    // One row of which only `n` values are not zero: values[k] belongs to feature features[k].
    void (*sparse)(const MapSpec& spec, const double* values, const std::size_t* features, std::size_t n,
                   MapBlock block, double* out);
    // values = quantum * round(factor * values), factor a power of two.
    void (*round)(double* values, std::size_t n, double factor, double quantum);
};

}  // namespace steelyard
