"""Learners in skl2onnx's registry: importing this module is enough (extra ``onnx``).

Pipelines of scikit-learn that end in a learner from here are then converted as a whole. The learner's part is
the graph of :func:`steelyard.compat.onnx.to_onnx`, in double precision whatever comes before it; its outputs
are called ``label`` and ``scores``.

Examples
--------
>>> import skl2onnx  # doctest: +SKIP
>>> import steelyard.compat.skl2onnx  # doctest: +SKIP
>>> skl2onnx.to_onnx(pipeline, X[:1])  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper
from skl2onnx import update_registered_converter
from skl2onnx.common import data_types
from skl2onnx.common.utils import check_input_and_output_types

from steelyard.compat.onnx import CONVERTED, OPSET, to_onnx

__all__ = ["register"]

_TYPES = {
    TensorProto.BOOL: data_types.BooleanTensorType,
    TensorProto.INT64: data_types.Int64TensorType,
    TensorProto.DOUBLE: data_types.DoubleTensorType,
    TensorProto.STRING: data_types.StringTensorType,
}


def register() -> None:
    """Tell skl2onnx about the learners that have a form in ONNX; done by importing this module."""
    for kind in CONVERTED:
        update_registered_converter(
            kind, f"Steelyard{kind.__name__}", _checked, _converted, overwrite=True, parser=_declared
        )


def _declared(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:  # noqa: ARG001  their signature
    """What comes out of a learner: its answer and its scores, typed as in its own graph."""
    operator = scope.declare_local_operator(f"Steelyard{_kind(model).__name__}", model)
    operator.inputs.extend(inputs)
    for value in to_onnx(model).graph.output:
        of = value.type.tensor_type
        shape = [size.dim_value or None for size in of.shape.dim]
        operator.outputs.append(scope.declare_local_variable(value.name, _TYPES[of.elem_type](shape)))
    return operator.outputs


def _kind(model: Any) -> type:
    return next(kind for kind in CONVERTED if isinstance(model, kind))


def _checked(operator: Any) -> None:
    """Outputs have their types and shapes already; rows must be numbers."""
    numbers = [data_types.DoubleTensorType, data_types.FloatTensorType, data_types.Int64TensorType]
    check_input_and_output_types(operator, good_input_types=numbers)


def _converted(scope: Any, operator: Any, container: Any) -> None:
    """The nodes and numbers of the learner's own graph, under names that are free in the graph around it."""
    graph = to_onnx(operator.raw_operator).graph
    names = {value.name: place.full_name for value, place in zip(graph.output, operator.outputs, strict=True)}
    names["X"] = scope.get_unique_variable_name("X")
    container.add_node(
        "Cast",
        operator.inputs[0].full_name,
        names["X"],
        name=scope.get_unique_operator_name("Cast"),
        to=TensorProto.DOUBLE,
    )

    def renamed(name: str) -> str:
        return names.setdefault(name, scope.get_unique_variable_name(name))

    for number in graph.initializer:
        texts = list(number.string_data)
        if texts:
            container.add_initializer(renamed(number.name), TensorProto.STRING, list(number.dims), texts)
        else:
            container.add_initializer(renamed(number.name), None, None, number)
    for node in graph.node:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        container.add_node(
            node.op_type,
            [renamed(name) for name in node.input],
            [renamed(name) for name in node.output],
            op_version=OPSET,
            name=scope.get_unique_operator_name(node.op_type),
            **attributes,
        )


register()
