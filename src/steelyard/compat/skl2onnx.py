"""Registration of the learners in skl2onnx, which happens when this module is imported (extra ``onnx``).

skl2onnx can then convert scikit-learn pipelines that end in a learner of this package. The learner becomes
the graph of :func:`steelyard.compat.onnx.to_onnx`, always in double precision; its outputs are ``label`` and
``scores``.

Examples
--------
>>> import skl2onnx  # doctest: +SKIP
>>> import steelyard.compat.skl2onnx  # doctest: +SKIP
>>> skl2onnx.to_onnx(pipeline, X[:1])  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, compose
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
    """Register the learners that can be converted to ONNX. Importing this module calls this function."""
    for kind in CONVERTED:
        update_registered_converter(
            kind, f"Steelyard{kind.__name__}", _checked, _converted, overwrite=True, parser=_declared
        )


def _declared(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:  # noqa: ARG001
    """Declare the outputs ``label`` and ``scores`` of a learner with the types in its ONNX graph."""
    kind = next(kind for kind in CONVERTED if isinstance(model, kind))
    operator = scope.declare_local_operator(f"Steelyard{kind.__name__}", model)
    operator.inputs.extend(inputs)
    for value in to_onnx(model).graph.output:
        of = value.type.tensor_type
        shape = [size.dim_value or None for size in of.shape.dim]
        operator.outputs.append(scope.declare_local_variable(value.name, _TYPES[of.elem_type](shape)))
    return operator.outputs


def _checked(operator: Any) -> None:
    """Check that all inputs are numeric. The output types are set by ``_declared``."""
    numbers = [data_types.DoubleTensorType, data_types.FloatTensorType, data_types.Int64TensorType]
    check_input_and_output_types(operator, good_input_types=numbers)


def _converted(scope: Any, operator: Any, container: Any) -> None:
    """Add nodes and constants of the learner's graph, renamed to be unique in the outer graph."""
    prefix = scope.get_unique_operator_name("Steelyard")
    graph = compose.add_prefix(to_onnx(operator.raw_operator), f"{prefix}_").graph
    cast = scope.get_unique_operator_name("Cast")
    container.add_node(
        "Cast", operator.inputs[0].full_name, graph.input[0].name, name=cast, to=TensorProto.DOUBLE
    )
    container.initializers.extend(graph.initializer)
    container.nodes.extend(graph.node)
    container.node_domain_version_pair_sets.add(("", OPSET))
    for value, output in zip(graph.output, operator.outputs, strict=True):
        name = scope.get_unique_operator_name("Identity")
        container.add_node("Identity", value.name, output.full_name, name=name)


register()
