// Access to threading.RLock from C++.
#pragma once

#include <nanobind/nanobind.h>

namespace steelyard::bind {

// Returns whether this thread can acquire a lock without waiting. The result stays valid until the GIL is released.
inline bool can_acquire(PyObject* lock) {
    static PyObject* const acquire = PyUnicode_InternFromString("acquire");
    static PyObject* const release = PyUnicode_InternFromString("release");
    PyObject* const args[] = {lock, Py_False};
    const nanobind::object acquired = nanobind::steal(PyObject_VectorcallMethod(acquire, args, 2, nullptr));
    if (!acquired.is_valid()) throw nanobind::python_error();
    if (acquired.ptr() != Py_True) return false;
    if (!nanobind::steal(PyObject_VectorcallMethod(release, args, 1, nullptr)).is_valid())
        throw nanobind::python_error();
    return true;
}

}  // namespace steelyard::bind
