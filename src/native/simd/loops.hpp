// All hot loops of one SIMD level. This file is compiled once per level.
// The including file sets the name and the vector width of the level.
#pragma once

#include "ball.hpp"
#include "boundary.hpp"
#include "factor.hpp"
#include "gram.hpp"
#include "kernel.hpp"
#include "logistic.hpp"
#include "map.hpp"
#include "online.hpp"
#include "pair.hpp"
#include "score.hpp"
#include "sequence.hpp"
#include "shapley.hpp"
#include "simd/simd.hpp"
#include "solver.hpp"
#include "split.hpp"

namespace steelyard::STEELYARD_LEVEL {

extern const Loops loops;
const Loops loops{STEELYARD_LEVEL_NAME, gram_loops,  kernel_loops,  ball_loops,     solver_loops, online_loops,
                  sequence_loops,       score_loops, pair_loops,    boundary_loops, map_loops,    factor_loops,
                  shapley_loops,        split_loops, logistic_loops};

}  // namespace steelyard::STEELYARD_LEVEL
