#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "arrays.hpp"
#include "common/interrupt.hpp"

namespace {

// Ctrl-C: signals are looked at by the main thread alone; elsewhere this does nothing, and where it is cheap to know
// which thread this is, it does not wait for the interpreter either: others may be at work there.
void check_signals() {
#ifdef __linux__
    if (syscall(SYS_gettid) != getpid()) return;
#endif
    nanobind::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Locks and what is derived belong to whoever holds the interpreter's lock. A Python that can do without it takes it
// back while this is imported, unless it was told not to; then nothing here would be safe.
void require_the_lock_of_the_interpreter() {
    const nanobind::object sys = nanobind::module_::import_("sys");
    if (!nanobind::hasattr(sys, "_is_gil_enabled") || nanobind::cast<bool>(sys.attr("_is_gil_enabled")())) return;
    throw nanobind::import_error(
        "steelyard needs the interpreter's lock, and this Python was told to do without it; nothing was imported.\n"
        "hint: leave out PYTHON_GIL=0 and -X gil=0, and the lock is taken back when steelyard is imported");
}

}  // namespace

NB_MODULE(_native, m) {
    require_the_lock_of_the_interpreter();
    // A model that is still alive when the interpreter ends is the user's affair and no leak of ours.
    nanobind::set_leak_warnings(false);
    steelyard::set_interrupt_check(&check_signals);
    m.doc() = "Loops over numbers. Policy, names and checks live in Python.";
    steelyard::bind::bind_simd(m);
    steelyard::bind::bind_turns(m);
    steelyard::bind::bind_gram(m);
    steelyard::bind::bind_exact_sums(m);
    steelyard::bind::bind_row_hash(m);
    steelyard::bind::bind_number_lines(m);
    steelyard::bind::bind_scores(m);
    steelyard::bind::bind_maps(m);
    steelyard::bind::bind_planes(m);
    steelyard::bind::bind_kernels(m);
    steelyard::bind::bind_sequences(m);
    steelyard::bind::bind_gradient_boosting(m);
    steelyard::bind::bind_piecewise(m);
    steelyard::bind::bind_row_experts(m);
    steelyard::bind::bind_boundary(m);
    steelyard::bind::bind_window_auc(m);
    steelyard::bind::bind_enclosing(m);
    steelyard::bind::bind_incremental_svc(m);
    steelyard::bind::bind_koil(m);
    steelyard::bind::bind_online(m);
}
