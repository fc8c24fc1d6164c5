// Fast access to one row and its label, for streams of single rows.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "arrays.hpp"

namespace steelyard::bind {

using LabelCodes = nb::typed<nb::dict, nb::any, nb::int_>;

inline bool is_finite(const double* values, std::size_t n) {
    bool has_nonfinite = false;
    for (std::size_t i = 0; i < n; ++i) has_nonfinite |= !(std::abs(values[i]) <= DBL_MAX);
    return !has_nonfinite;
}

// Returns the type numpy.ndarray, which is looked up once. The reference is never released.
inline const PyTypeObject* array_type() {
    static const PyObject* const type = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
    return reinterpret_cast<const PyTypeObject*>(type);
}

// RAII view of the buffer of a C-contiguous numpy.ndarray.
// No buffer is acquired for other objects, including instances of subclasses.
class ArrayView {
  public:
    explicit ArrayView(PyObject* array) {
        if (Py_TYPE(array) != array_type()) return;
        is_open_ = PyObject_GetBuffer(array, &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0;
        if (!is_open_) PyErr_Clear();
    }
    ~ArrayView() {
        if (is_open_) PyBuffer_Release(&view_);
    }
    ArrayView(const ArrayView&) = delete;
    ArrayView& operator=(const ArrayView&) = delete;

    bool has_shape(std::initializer_list<std::size_t> shape) const {
        return is_open_ && static_cast<std::size_t>(view_.ndim) == shape.size() &&
               std::equal(shape.begin(), shape.end(), view_.shape, [](std::size_t expected, Py_ssize_t actual) {
                   return static_cast<Py_ssize_t>(expected) == actual;
               });
    }
    bool has_doubles() const { return is_open_ && std::string_view(view_.format) == "d"; }
    bool has_objects() const { return is_open_ && std::string_view(view_.format).find('O') != std::string_view::npos; }
    const double* doubles() const { return static_cast<const double*>(view_.buf); }

  private:
    Py_buffer view_;
    bool is_open_ = false;
};

// One row and the code of its label. The code is -1 if the row or the label needs conversion or checks.
struct PlainRow {
    ArrayView X;
    std::int32_t code = -1;

    PlainRow(PyObject* row, PyObject* label_array, std::size_t n_features, const LabelCodes& codes) : X(row) {
        if (!X.has_shape({1, n_features}) || !X.has_doubles()) return;
        const ArrayView labels(label_array);
        if (!labels.has_shape({1}) || labels.has_objects()) return;
        static PyObject* const item_method = PyUnicode_InternFromString("item");
        const nb::object label = nb::steal(PyObject_VectorcallMethod(item_method, &label_array, 1, nullptr));
        if (!label.is_valid()) throw nb::python_error();
        const PyTypeObject* type = Py_TYPE(label.ptr());
        if (type != &PyLong_Type && type != &PyBool_Type && type != &PyUnicode_Type) return;
        PyObject* found = PyDict_GetItemWithError(codes.ptr(), label.ptr());
        if (found) code = nb::cast<std::int32_t>(nb::handle(found));
    }

    // Reads the row and the label from a tuple (X, y).
    PlainRow(nb::handle pair, std::size_t n_features, const LabelCodes& codes)
        : PlainRow(item(pair, 0), item(pair, 1), n_features, codes) {}

  private:
    static PyObject* item(nb::handle pair, Py_ssize_t i) {
        const bool is_pair = PyTuple_CheckExact(pair.ptr()) && PyTuple_Size(pair.ptr()) == 2;
        return is_pair ? PyTuple_GetItem(pair.ptr(), i) : Py_None;
    }
};

}  // namespace steelyard::bind
