#define STEELYARD_LEVEL baseline
#define STEELYARD_LEVEL_NAME "baseline"
#define STEELYARD_VECTOR_BYTES 16
#include "loops.hpp"
