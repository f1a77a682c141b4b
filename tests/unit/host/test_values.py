"""Values that cross the boundary and come back as they were."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from grader.host.values import DTYPES, Encoder, shape_text, tensor_from_wire, tensor_to_wire
from grader.host.wire import BigInt, Foreign, Items, ProtocolError, TensorData


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_bit_for_bit(name: str) -> None:
    dtype = DTYPES[name]
    tensor = torch.randint(0, 2, (3, 4)).to(dtype) if not dtype.is_floating_point else torch.randn(3, 4).to(dtype)
    back = tensor_from_wire(tensor_to_wire(tensor))
    assert back.dtype == dtype and back.shape == tensor.shape
    assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5),
        torch.empty(0, 3),
        torch.tensor([math.nan, math.inf, -0.0]),
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.arange(10.0)[::3],
        torch.ones(1, 3).expand(4, 3),
        torch.rand(6, 3)[:, 1][:1],
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}/{tensor.stride()}",
)
def test_layouts_come_back(tensor: torch.Tensor) -> None:
    kept = tensor_from_wire(tensor_to_wire(tensor, keep_strides=True))
    plain = tensor_from_wire(tensor_to_wire(tensor))
    for back in (kept, plain):
        assert torch.equal(torch.nan_to_num(back), torch.nan_to_num(tensor.resolve_conj()))
    if tensor.numel() > 1:
        assert kept.stride() == tensor.stride()


def test_a_meta_tensor_has_a_shape_and_no_bytes() -> None:
    wire = tensor_to_wire(torch.empty(2, 3, device="meta"))
    assert wire.data == b"" and tensor_from_wire(wire).is_meta


@pytest.mark.parametrize(
    "wire",
    [
        TensorData("float32", [2, 3], b"\0" * 20),
        TensorData("float32", [-1], b""),
        TensorData("object", [1], b"\0" * 8),
        TensorData("float32", [2], b"\0" * 8, [-1]),
        TensorData("float32", [2], b"\0" * 8, [1, 1]),
        TensorData("float32", [1 << 40], b"\0" * 8),
    ],
)
def test_a_tensor_whose_bytes_do_not_fit_is_refused(wire: TensorData) -> None:
    with pytest.raises(ProtocolError):
        tensor_from_wire(wire)


class Pair(NamedTuple):
    k: int
    v: int


class Loud(float):
    def __eq__(self, other: object) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        raise AssertionError("a learner's method ran")

    __hash__ = float.__hash__


class Lazy(torch.Tensor):
    pass


def test_numbers_and_containers() -> None:
    encode = Encoder()
    assert encode(Pair(1, 2)) == Items("tuple", [1, 2])
    assert encode(torch.topk(torch.arange(3.0), 1)).__class__ is Items
    assert encode(2**70) == BigInt(hex(2**70))
    assert encode(np.float64(2.5)) == 2.5 and type(encode(np.float64(2.5))) is float
    assert encode(np.int64(7)) == 7 and type(encode(np.int64(7))) is int
    assert encode(np.bool_(True)) is True
    loud = encode(Loud(2.5))
    assert type(loud) is float and repr(loud) == "2.5"


@pytest.mark.parametrize(
    "value", [object(), np.ones(2), torch.ones(2).as_subclass(Lazy), {1, 2}, torch.ones(2).to_sparse()]
)
def test_what_has_no_wire_form_travels_as_its_types_name(value: object) -> None:
    found = Encoder()(value)
    assert isinstance(found, Foreign) and found.type_name


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    found: Any = Encoder()(loop)
    for _ in range(30):
        if isinstance(found, Foreign):
            break
        found = found.items[0]
    assert isinstance(found, Foreign)


def test_shapes_in_a_call() -> None:
    assert shape_text(torch.zeros(2, 7)) == "(2, 7) float32"
    assert shape_text((torch.zeros(3), None)) == "((3,) float32, None)"
    assert shape_text([1, 2]) == "[1, 2]"
