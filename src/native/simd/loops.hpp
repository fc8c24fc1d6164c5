// Compiled once a level; the including file sets the level's name and vector width.
#pragma once

#include "gram.hpp"
#include "kernel.hpp"
#include "sequence.hpp"
#include "steelyard/simd.hpp"

namespace steelyard::STEELYARD_LEVEL {

extern const Loops loops;
const Loops loops{STEELYARD_LEVEL_NAME, gram_loops, kernel_loops, sequence_loops};

}  // namespace steelyard::STEELYARD_LEVEL
