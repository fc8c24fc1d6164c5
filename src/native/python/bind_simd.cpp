#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "simd/simd.hpp"

namespace steelyard::bind {

void bind_simd(nb::module_& m) {
    m.def("simd_level", [] { return std::string(loops().name); }, "Returns the name of the SIMD level in use.");
    m.def("simd_levels", &available_levels, "Returns the SIMD levels that this processor supports, slowest first.");
    m.def(
        "use_simd_level",
        [](const std::string& name) {
            if (!use_level(name)) throw nb::value_error(("this processor cannot run level '" + name + "'").c_str());
        },
        "name"_a, "Switches the whole process to a SIMD level; for tests and benchmarks.");
}

}  // namespace steelyard::bind
