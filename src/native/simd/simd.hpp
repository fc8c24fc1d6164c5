// SIMD dispatch: compiles hot loops for several instruction sets and chooses one of them at run time.
//
// A family of loops (gram, kernel, ...) is a struct of function pointers. `simd/loops.hpp` defines the loops once.
// baseline.cpp, avx2.cpp and avx512.cpp compile the loops with their own flags into separate namespaces.
// Separate namespaces prevent the linker from mixing code of different levels. The first use selects the best level.
// The environment variable STEELYARD_SIMD=baseline|avx2|avx512 selects another supported level.
#pragma once

#include <string>
#include <vector>

#include "simd/loops_ball.hpp"
#include "simd/loops_boundary.hpp"
#include "simd/loops_factor.hpp"
#include "simd/loops_gram.hpp"
#include "simd/loops_kernel.hpp"
#include "simd/loops_logistic.hpp"
#include "simd/loops_map.hpp"
#include "simd/loops_online.hpp"
#include "simd/loops_pair.hpp"
#include "simd/loops_score.hpp"
#include "simd/loops_sequence.hpp"
#include "simd/loops_shapley.hpp"
#include "simd/loops_solver.hpp"
#include "simd/loops_split.hpp"

namespace steelyard {

struct Loops {
    const char* name;  // "baseline", "avx2" or "avx512"
    GramLoops gram;
    KernelLoops kernel;
    BallLoops ball;
    SolverLoops solver;
    OnlineLoops online;
    SequenceLoops sequence;
    ScoreLoops score;
    PairLoops pair;
    BoundaryLoops boundary;
    MapLoops map;
    FactorLoops factor;
    ShapleyLoops shapley;
    SplitLoops split;
    LogisticLoops logistic;
};

// Returns the loops of the active level.
const Loops& loops();

// Returns the levels that this processor supports, slowest first. Tests compare each level with the first one.
std::vector<std::string> available_levels();

// Switches the whole process to a level. Returns false if this processor does not support the level.
bool use_level(const std::string& name);

}  // namespace steelyard
