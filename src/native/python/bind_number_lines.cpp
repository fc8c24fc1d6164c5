#include "arrays.hpp"
#include "tables/number_lines.hpp"

namespace steelyard::bind {

void bind_number_lines(nb::module_& m) {
    m.def(
        "read_number_lines",
        [](nb::bytes lines, char delimiter, Array<const std::int32_t, 1> places, std::size_t n_wanted) -> nb::object {
            for (const std::int32_t place : span(places))
                require(place < static_cast<std::int32_t>(n_wanted),
                        "read_number_lines: a position is beyond the end of the row");
            std::optional<NumberTable> table;
            {
                nb::gil_scoped_release unlocked;
                table = read_number_lines({lines.c_str(), lines.size()}, delimiter, span(places), n_wanted);
            }
            if (!table) return nb::none();
            const std::size_t shape[2] = {table->n_rows, n_wanted};
            nb::capsule owner(table->values.get(), [](void* p) noexcept { delete[] static_cast<double*>(p); });
            return nb::cast(NumpyArray<double, 2>(table->values.release(), 2, shape, owner));
        },
        "lines"_a, "delimiter"_a, "places"_a.noconvert(), "n_wanted"_a,
        nb::sig(
            "def read_number_lines(lines: bytes, delimiter: str, "
            "places: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], "
            "n_wanted: int) -> NDArray[numpy.float64] | None"),
        "Parse complete CSV lines of numbers. Cell c of a line becomes column places[c] of the result. Returns None if "
        "a line contains anything else.");
}

}  // namespace steelyard::bind
