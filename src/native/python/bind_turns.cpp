#include "arrays.hpp"
#include "turn_lock.hpp"

// The guards of steelyard._concurrency, which says what they are for. They stand here because a stream of single rows
// pays for them with every call, and because no signal handler runs between two lines of this file.

namespace steelyard::bind {

namespace {

nb::object stolen(PyObject* made) {
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
}

nb::object attributes_of(nb::handle object) { return stolen(PyObject_GenericGetDict(object.ptr(), nullptr)); }

// From CPython 3.12 on an object may keep its attributes outside of a dictionary, and from 3.13 on it goes on looking
// for them there after PyObject_GenericSetDict; what `object.__dict__ = attributes` does is right everywhere.
void publish(nb::handle object, nb::handle attributes) {
    static PyObject* const name = PyUnicode_InternFromString("__dict__");
    const int failed = Py_Version < 0x030c0000 ? PyObject_GenericSetDict(object.ptr(), attributes.ptr(), nullptr)
                                               : PyObject_SetAttr(object.ptr(), name, attributes.ptr());
    if (failed != 0) throw nb::python_error();
}

// Another object of the same class with these attributes.
nb::object twin_with(nb::handle object, nb::handle attributes) {
    nb::object twin = stolen(PyType_GenericAlloc(Py_TYPE(object.ptr()), 0));
    publish(twin, attributes);
    return twin;
}

nb::object call(nb::handle method, nb::handle self, const nb::tuple& args, const nb::dict& kwargs) {
    constexpr std::size_t few = 8;
    const std::size_t n = args.size();
    if (n > few || kwargs.size() > 0) {
        nb::object all = stolen(PyTuple_New(static_cast<Py_ssize_t>(n) + 1));
        NB_TUPLE_SET_ITEM(all.ptr(), 0, nb::borrow(self).release().ptr());
        for (std::size_t i = 0; i < n; ++i)
            NB_TUPLE_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i) + 1, nb::borrow(args[i]).release().ptr());
        return stolen(PyObject_Call(method.ptr(), all.ptr(), kwargs.ptr()));
    }
    PyObject* stack[few + 1] = {self.ptr()};
    for (std::size_t i = 0; i < n; ++i) stack[i + 1] = NB_TUPLE_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i));
    return stolen(PyObject_Vectorcall(method.ptr(), stack, n + 1, nullptr));
}

// Holds a lock.
class Turn {
  public:
    explicit Turn(TurnLock& lock) : lock_(lock) { lock_.acquire(-1.0); }
    ~Turn() { lock_.release(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

  private:
    TurnLock& lock_;
};

}  // namespace

void bind_turns(nb::module_& m) {
    nb::class_<TurnLock>(m, "TurnLock", nb::is_weak_referenceable(), "A re-entrant lock, cheap where nobody waits.")
        .def(nb::init<>())
        .def(
            "acquire",
            [](TurnLock& lock, bool blocking, double timeout) { return lock.acquire(blocking ? timeout : 0.0); },
            "blocking"_a = true, "timeout"_a = -1.0, "Takes it; False if that was not possible in time.")
        .def("release", &TurnLock::release, "Gives it back as often as it was taken.")
        .def("__enter__", [](TurnLock& lock) { return lock.acquire(-1.0); })
        .def(
            "__exit__", [](TurnLock& lock, nb::handle, nb::handle, nb::handle) { lock.release(); }, nb::arg().none(),
            nb::arg().none(), nb::arg().none())
        .def("start_anew_after_fork", &TurnLock::start_anew_after_fork,
             "Forgets other threads; a lock of the thread that forked stays its own.");
    m.def(
        "change_at_once",
        [](TurnLock& lock, nb::handle method, nb::handle learner, const nb::tuple& args, const nb::dict& kwargs) {
            Turn turn(lock);
            nb::object own = stolen(PyDict_Copy(attributes_of(learner).ptr()));
            nb::object twin = twin_with(learner, own);
            nb::object result = call(method, twin, args, kwargs);
            publish(learner, attributes_of(twin));  // the one moment
            return result.is(twin) ? nb::borrow(learner) : result;
        },
        nb::sig("def change_at_once(lock: TurnLock, method: typing.Any, learner: typing.Any, "
                "args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any]) -> typing.Any"),
        "Calls a method of a twin in turn; when it returns, the twin's attributes become those of the learner.");
    m.def(
        "ask_at_once",
        [](nb::handle method, nb::handle learner, const nb::tuple& args, const nb::dict& kwargs) {
            return call(method, twin_with(learner, attributes_of(learner)), args, kwargs);
        },
        nb::sig("def ask_at_once(method: typing.Any, learner: typing.Any, "
                "args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any]) -> typing.Any"),
        "Calls a method of a view that keeps the attributes that are published now.");
    m.def(
        "ask_in_turn",
        [](TurnLock& lock, nb::handle method, nb::handle learner, const nb::tuple& args, const nb::dict& kwargs) {
            Turn turn(lock);
            return call(method, learner, args, kwargs);
        },
        nb::sig("def ask_in_turn(lock: TurnLock, method: typing.Any, learner: typing.Any, "
                "args: tuple[typing.Any, ...], kwargs: dict[str, typing.Any]) -> typing.Any"),
        "Calls a method while the lock is held.");
}

}  // namespace steelyard::bind
