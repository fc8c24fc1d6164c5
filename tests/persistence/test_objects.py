"""Saving of models: parameters, state, random generators, registered classes."""

from __future__ import annotations

import math
import re
import struct

import numpy as np
import pytest
from persistence_samples import Learner, assemble, learner, same, seal

from steelyard.exceptions import DataTypeError, FileFormatError, ParameterError
from steelyard.persistence import from_bytes, storable, to_bytes


def test_from_bytes_restores_parameters_and_state():
    model = learner()
    back = from_bytes(to_bytes(model))
    assert type(back) is Learner
    assert (back.C, back.kernel, back.feature_map.width) == (0.5, ("poly", 3), math.inf)
    assert same(back._get_state()["counts_"], model.counts_)
    assert to_bytes(back) == to_bytes(model)


def test_unfitted_model_is_restored_unfitted():
    assert not hasattr(from_bytes(to_bytes(Learner())), "weights_")


def test_bytes_are_equal_only_for_equal_models():
    assert to_bytes(learner()) == to_bytes(learner())
    other = learner()
    other.weights_[2, 3] = np.nextafter(other.weights_[2, 3], 9)
    assert to_bytes(other) != to_bytes(learner())


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
@pytest.mark.parametrize("kind", [np.random.Generator, np.random.RandomState])
def test_restored_random_generator_continues_its_sequence(name, kind):
    random = kind(getattr(np.random, name)(5))
    random.standard_normal(7)
    random.integers(9, dtype=np.int32) if kind is np.random.Generator else random.randint(9)
    back = from_bytes(to_bytes(Learner(random_state=random))).random_state
    np.testing.assert_array_equal(back.standard_normal(1000), random.standard_normal(1000))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("MT19937", "pos", 625), ("MT19937", "pos", -1), ("Philox", "buffer_pos", -9)],
)
def test_random_generator_state_out_of_range_raises(name, field, value):
    random = np.random.Generator(getattr(np.random, name)(5))
    data = to_bytes(Learner(random_state=random))
    header_size = struct.unpack_from("<Q", data, 12)[0]
    text = data[64 : 64 + header_size].rstrip()
    forged = re.sub(rb'("%b":)\d+' % field.encode(), rb"\g<1>%d" % value, text)
    assert forged != text
    with pytest.raises(FileFormatError, match=f"{field} is out of range"):
        from_bytes(seal(forged, data[64 + header_size :]))


def test_saving_a_function_raises_and_names_the_attribute():
    with pytest.raises(DataTypeError, match=r"Learner\.parameters\.kernel is the function") as caught:
        to_bytes(Learner(kernel=lambda a, b: a @ b))
    assert "by name" in caught.value.hint


def test_saving_a_foreign_bit_generator_raises():
    class Own(np.random.PCG64):
        pass

    with pytest.raises(DataTypeError, match="random_state cannot be saved: the bit generator Own"):
        to_bytes(Learner(random_state=np.random.Generator(Own(1))))


def test_saving_an_unregistered_subclass_raises():
    class Special(Learner):
        pass

    with pytest.raises(DataTypeError, match="expected a model of a registered class; got Special"):
        to_bytes(Special())
    with pytest.raises(DataTypeError, match="feature_map is a Special"):
        to_bytes(Learner(feature_map=Special()))


def model_content(name="tests.Learner", parameters=None, state=None):
    parts = {"class": name, "parameters": {"dict": parameters or {}}, "state": {"dict": state or {}}}
    return {"node": ["object", {"dict": parts}]}


def test_unknown_class_error_names_class_and_version():
    data = assemble(model_content("os.system"), written_by={"steelyard": "3.2.1"})
    with pytest.raises(FileFormatError, match=r"'os\.system', which is not registered; .* '3\.2\.1'"):
        from_bytes(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (model_content(parameters={"gamma": 1}), "gamma"),
        (model_content(state={"weights_": 1}), "weights_|shape"),
        (model_content("tests.Inner", state={"a": 1}), "learns nothing"),
        (3, "contains a int, not a model"),
        ([model_content()], "contains a list"),
        (model_content() | {"x": 1}, "one tag"),
    ],
    ids=str,
)
def test_state_rejected_by_class_raises_file_format_error(content, message):
    with pytest.raises(FileFormatError, match=message):
        from_bytes(assemble(content))


def test_missing_parameter_in_file_gets_its_default():
    assert from_bytes(assemble(model_content(parameters={"C": 4.0}))).kernel == "rbf"


def test_registering_a_name_twice_raises():
    with pytest.raises(ParameterError, match=r"'tests\.Inner' is taken by"):
        storable("tests.Inner")(Learner)
