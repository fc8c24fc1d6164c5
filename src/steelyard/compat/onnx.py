"""Export of learners as ONNX graphs in double precision (extra ``onnx``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard._validation import check_started
from steelyard.enclosing import EnclosingClassifier
from steelyard.enclosing.bodies import POINT_RADIUS, KernelSphere, Sphere
from steelyard.exceptions import DataError
from steelyard.feature_maps import FourierMap, LandmarkMap, ReluMap, SigmoidMap
from steelyard.features import RandomFeatures
from steelyard.kernels import Kernel
from steelyard.online import KOIL
from steelyard.proximal import ProximalSVC

__all__ = ["to_onnx"]

OPSET = 17
_IR_VERSION = 8  # IR version that was released with opset 17, so that older runtimes accept the graph


def to_onnx(model: Any) -> Any:
    """Return a learner as an ONNX graph from ``X`` (double, rows x features) to ``label`` and ``scores``.

    All arithmetic is in double precision, and ``scores`` is ``decision_function``, in one column for two
    classes. Results differ from the learner by rounding only; with a feature map, a feature may differ by one
    quantization step. A label can differ only if two scores are equal within this error.

    Parameters
    ----------
    model : ProximalSVC, KOIL or EnclosingClassifier
        A fitted learner with numeric features: a ProximalSVC with or without a feature map, a KOIL with a
        kernel on vectors, or an EnclosingClassifier with ``shape="sphere"``.

    Returns
    -------
    onnx.ModelProto
        Write it with ``onnx.save`` or run it with ``onnxruntime``.
    """
    write = next((write for kind, write in _WRITERS.items() if isinstance(model, kind)), None)
    if write is None:
        raise DataError(
            f"expected one of {', '.join(kind.__name__ for kind in _WRITERS)}; got {type(model).__name__}.",
            source="to_onnx",
        )
    check_started(model, "to_onnx")
    if model._sequence_kernel() is not None:
        raise DataError("sequence kernels have no ONNX form.", source="to_onnx")
    graph = _Graph(int(model.n_features_in_))
    scores = write(model, graph)
    return graph.finished(scores, model)


class _Graph:
    """Builder of an ONNX graph. Adding an operation returns the name of its result."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        array = np.asarray(value)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def __call__(self, operation: str, *inputs: Any, out: str | None = None, **attributes: Any) -> str:
        """Add an operation and return the name of its result. Inputs are names of results, or numbers."""
        from onnx import helper

        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        result = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, names, [result], **attributes))
        return result

    def finished(self, scores: str, model: Any) -> Any:
        from onnx import TensorProto, checker, helper

        classes = np.asarray(model.classes_)
        labels, label_type = _label_tensor(classes)
        self("Identity", scores, out="scores")
        self("Gather", labels, self._winner(len(classes)), out="label", axis=0)
        double = TensorProto.DOUBLE
        n_scores = 1 if len(classes) <= 2 else len(classes)
        graph = helper.make_graph(
            self.nodes,
            type(model).__name__,
            [helper.make_tensor_value_info("X", double, [None, self.n_features])],
            [
                helper.make_tensor_value_info("label", label_type, [None]),
                helper.make_tensor_value_info("scores", double, [None, n_scores]),
            ],
            self.constants,
        )
        onnx_model = helper.make_model(
            graph,
            producer_name="steelyard",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
        )
        names = model.__dict__.get("feature_names_in_", model.__dict__.get("_keys", ()))
        helper.set_model_props(onnx_model, {"features": json.dumps([str(name) for name in names])})
        checker.check_model(onnx_model, full_check=True)
        return onnx_model

    def _winner(self, n_classes: int) -> str:
        """Add operations that compute the index of the predicted class for each row."""
        if n_classes > 2:
            return self("ArgMax", "scores", axis=1, keepdims=0)
        flat = self("Squeeze", "scores", np.array([1]))
        is_second = self("Cast", self("Greater", flat, np.float64(0.0)), to=7)
        return is_second if n_classes == 2 else self("Mul", is_second, np.int64(0))


def _label_tensor(classes: NDArray[Any]) -> tuple[NDArray[Any], int]:
    from onnx import TensorProto

    values = classes.tolist()
    for kind, dtype, tensor_type in (
        (bool, np.bool_, TensorProto.BOOL),
        (int, np.int64, TensorProto.INT64),
        (float, np.float64, TensorProto.DOUBLE),
        (str, object, TensorProto.STRING),
    ):
        if all(type(value) is kind for value in values):
            return np.array(values, dtype=dtype), int(tensor_type)
    raise DataError(f"labels must all be numbers, or all strings; got {values[:5]!r}.", source="to_onnx")


# -- conversion of ProximalSVC ------------------------------------------------------------------------


def _proximal(model: ProximalSVC, graph: _Graph) -> str:
    features = "X" if model.feature_map_ is None else _mapped(model.feature_map_, graph)
    return graph("Add", graph("MatMul", features, model.coef_.T), model.intercept_)


def _mapped(features: RandomFeatures, graph: _Graph) -> str:
    fitted = features.map_
    scaled = graph("Mul", graph("Sub", "X", fitted.shift), fitted.scale)
    if isinstance(fitted, LandmarkMap):
        return _landmarks(fitted, scaled, graph)
    # The feature map of the learner also rounds coordinates to float32.
    entries = graph("Cast", graph("Cast", graph("Clip", scaled, -1e30, 1e30), to=1), to=11)
    turns = graph("Add", graph("MatMul", entries, fitted.weights), fitted.starts)
    if isinstance(fitted, FourierMap):
        fractions = graph("Sub", turns, graph("Floor", turns))  # in turns, the cosine has period 1
        values = graph("Mul", _cosine_of_turns(fractions, graph), fitted.height)
    elif isinstance(fitted, SigmoidMap):
        powers = graph("Exp", graph("Mul", graph("Clip", turns, -1000.0, 1000.0), -np.log(2.0)))
        values = graph("Div", fitted.height, graph("Add", powers, 1.0))
    else:
        assert isinstance(fitted, ReluMap)
        values = graph("Clip", turns, 0.0, fitted.height)
    return _rounded(values, fitted.quantum, graph)


def _cosine_of_turns(turns: str, graph: _Graph) -> str:
    """Add operations that compute the cosine of 2 pi t as 1 - 2 sin(pi t)^2, where ``turns`` is t.

    Most versions of onnxruntime support the sine of doubles but not the cosine.
    """
    half = graph("Sin", graph("Mul", turns, np.pi))
    return graph("Sub", 1.0, graph("Mul", graph("Mul", half, half), 2.0))


def _landmarks(fitted: LandmarkMap, scaled: str, graph: _Graph) -> str:
    differences = _differences(scaled, fitted.landmarks.T, graph)
    if fitted.euclidean:
        squares = graph("ReduceSum", graph("Mul", differences, differences), np.array([2]), keepdims=0)
        distances = graph("Sqrt", squares)
    else:
        distances = graph("ReduceSum", graph("Abs", differences), np.array([2]), keepdims=0)
    kernel = graph("Exp", graph("Mul", distances, -np.log(2.0)))
    return _rounded(graph("MatMul", kernel, fitted.root * fitted.step), fitted.quantum, graph)


def _rounded(values: str, quantum: float, graph: _Graph) -> str:
    return graph("Mul", graph("Round", graph("Mul", values, 1.0 / quantum)), quantum)


# -- conversion of kernels ----------------------------------------------------------------------------


def _differences(rows: str, others: FloatArray, graph: _Graph) -> str:
    """Add operations that compute the differences of all pairs of ``rows`` and ``others``.

    Differences are accurate for any offset.
    """
    return graph("Sub", graph("Unsqueeze", rows, np.array([1])), others[None])


def _kernel_values(kernel: Kernel, others: FloatArray, graph: _Graph) -> str:
    name = kernel.kernel
    if name in {"rbf", "laplacian"}:
        differences = _differences("X", others, graph)
        sizes = graph("Mul", differences, differences) if name == "rbf" else graph("Abs", differences)
        distances = graph("ReduceSum", sizes, np.array([2]), keepdims=0)
        return graph("Exp", graph("Mul", distances, -float(kernel.gamma)))
    # Multiply the matrix by gamma here, because onnxruntime would convert a separate factor to float32.
    return _of_products(kernel, graph("MatMul", "X", _gamma(kernel) * others.T), graph)


def _diagonal(kernel: Kernel, graph: _Graph) -> str | np.float64:
    if kernel.kernel in {"rbf", "laplacian"}:
        return np.float64(1.0)
    squares = graph("ReduceSum", graph("Mul", "X", "X"), np.array([1]), keepdims=1)
    return _of_products(kernel, graph("Mul", squares, _gamma(kernel)), graph)


def _gamma(kernel: Kernel) -> float:
    return 1.0 if kernel.kernel == "linear" else float(kernel.gamma)


def _of_products(kernel: Kernel, products: str, graph: _Graph) -> str:
    """Add operations that compute kernel values from inner products multiplied by gamma."""
    if kernel.kernel == "linear":
        return products
    inner = graph("Add", products, float(kernel.coef0))
    return graph("Tanh", inner) if kernel.kernel == "sigmoid" else graph("Pow", inner, float(kernel.degree))


# -- conversion of KOIL and enclosing spheres --------------------------------------------------------


def _koil(model: KOIL, graph: _Graph) -> str:
    vectors = np.asarray(model.support_vectors_, dtype=np.float64)
    values = _kernel_values(model._kernels[0], vectors, graph)
    return graph("Add", graph("MatMul", values, model.dual_coef_.T), model.intercept_)


def _enclosing(model: EnclosingClassifier, graph: _Graph) -> str:
    bodies = model._bodies("to_onnx")
    if model.shape != "sphere":
        raise DataError("ellipsoids have no ONNX form; use shape='sphere'.", source="to_onnx")
    ratios = []
    for body, support in zip(bodies, model.support_vectors_.values(), strict=True):
        squared = _squared_distance(body, support, graph)
        ratios.append(graph("Div", graph("Sqrt", squared), max(float(body.ball.radius), POINT_RADIUS)))
    if len(ratios) == 2:
        return graph("Sub", *ratios)
    return graph("Neg", graph("Concat", *ratios, axis=1))


def _squared_distance(body: Any, support: FloatArray, graph: _Graph) -> str:
    """Add operations that compute the squared distance of each row to the center, as a column."""
    if isinstance(body, Sphere):
        differences = graph("Sub", "X", body.center)
        return graph("ReduceSum", graph("Mul", differences, differences), np.array([1]), keepdims=1)
    assert isinstance(body, KernelSphere)
    kernel, weights = body.center.kernel, body.center.coef.T
    sums = graph("MatMul", _kernel_values(kernel, support, graph), weights)
    squared = graph("Sub", _diagonal(kernel, graph), graph("Mul", sums, 2.0))
    return graph("Max", graph("Add", squared, body.squared_norm), 0.0)


_WRITERS: dict[type, Callable[[Any, _Graph], str]] = {
    ProximalSVC: _proximal,
    KOIL: _koil,
    EnclosingClassifier: _enclosing,
}
CONVERTED = tuple(_WRITERS)  # learners that can be converted to ONNX
