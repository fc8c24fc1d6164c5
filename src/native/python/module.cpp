#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "arrays.hpp"
#include "common/interrupt.hpp"

namespace {

// Runs signal handlers, for example for Ctrl-C. Python runs signal handlers only in the main thread.
// On Linux, other threads return without waiting for the GIL.
void check_signals() {
#ifdef __linux__
    if (syscall(SYS_gettid) != getpid()) return;
#endif
    nanobind::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// The bindings rely on the GIL to protect state.
// When this module is imported, a free-threaded Python enables the GIL, unless the user disables this by an option.
void require_gil() {
    const nanobind::object sys = nanobind::module_::import_("sys");
    if (!nanobind::hasattr(sys, "_is_gil_enabled") || nanobind::cast<bool>(sys.attr("_is_gil_enabled")())) return;
    throw nanobind::import_error(
        "steelyard needs the global interpreter lock (GIL), which is disabled; nothing was imported.\n"
        "hint: remove PYTHON_GIL=0 and -X gil=0; importing steelyard then enables the GIL");
}

}  // namespace

NB_MODULE(_native, m) {
    require_gil();
    // Models that are still alive when the interpreter exits are not reported as leaks.
    nanobind::set_leak_warnings(false);
    steelyard::set_interrupt_check(&check_signals);
    m.doc() = "Native numerical loops. Policies, names and checks are implemented in Python.";
    steelyard::bind::bind_simd(m);
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
    steelyard::bind::bind_ensemble(m);
    steelyard::bind::bind_window_auc(m);
    steelyard::bind::bind_enclosing(m);
    steelyard::bind::bind_incremental_svc(m);
    steelyard::bind::bind_koil(m);
    steelyard::bind::bind_online(m);
}
