#define STEELYARD_LEVEL avx2
#define STEELYARD_LEVEL_NAME "avx2"
#define STEELYARD_VECTOR_BYTES 32
#include "loops.hpp"
