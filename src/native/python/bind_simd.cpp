#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "simd/simd.hpp"

namespace steelyard::bind {

void bind_simd(nb::module_& m) {
    m.def("simd_level", [] { return std::string(loops().name); }, "Name of the instruction level in use.");
    m.def("simd_levels", &available_levels, "Instruction levels that this processor can run, slowest first.");
    m.def(
        "use_simd_level",
        [](const std::string& name) {
            if (!use_level(name)) throw nb::value_error(("this processor cannot run level '" + name + "'").c_str());
        },
        "name"_a, "Switch the whole process to an instruction level; meant for tests and benchmarks.");
}

}  // namespace steelyard::bind
