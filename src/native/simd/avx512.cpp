#define STEELYARD_LEVEL avx512
#define STEELYARD_LEVEL_NAME "avx512"
#define STEELYARD_VECTOR_BYTES 64
#include "loops.hpp"
