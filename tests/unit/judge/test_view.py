"""The learner's module from afar: calls, autograd across the boundary, state, errors; in a host and in this process."""

from __future__ import annotations

import time
import types
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from grader.host import limits, wire
from grader.host.process import Zygote
from grader.host.zygote import prepare_torch
from grader.judge.faults import BadReturn, LearnerRaised, MissingSymbol
from grader.judge.lanes import HostChannel
from grader.judge.trial import InProcess
from grader.judge.view import Channel, Foreign, Submission

SOURCE = """
import torch
from torch import nn

CONSTANT = 7
_kept = torch.zeros(3)


class Layer(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        if width < 1:
            raise ValueError(f"width = {width}")
        self.linear = nn.Linear(width, width, bias=bias)
        self.parts = nn.ModuleList([nn.Linear(width, 2), nn.Linear(width, 3)])
        self.calls = 0

    def forward(self, x, cache=None, use_cache=False):
        self.calls += 1
        y = self.linear(x)
        if cache is not None:
            y = y + cache[0]
        return y, ((y * 2, y.detach()) if use_cache else None)

    def number(self, n: int = 3):
        return n * 2


def scale(x, factor=2.0):
    return x * factor


def in_place(x):
    return x.mul_(2)


def kept(x):
    return _kept.copy_(x)


def draw(n, generator):
    return torch.rand(n, generator=generator)


def draw_globally(n):
    return torch.rand(n)


def fail(x):
    raise KeyError("no such head")


def leave(x):
    raise SystemExit(0)


def nothing(x):
    return None
"""


class Reference(types.ModuleType):
    class Layer(nn.Module):
        def forward(self, x: Tensor, cache: object = None, use_cache: bool = False) -> tuple[Tensor, object]: ...  # type: ignore[empty-body]
        def number(self, n: int = 3) -> int: ...  # type: ignore[empty-body]
        def extra(self) -> int: ...  # type: ignore[empty-body]

    @staticmethod
    def nothing(x: Tensor) -> Tensor: ...  # type: ignore[empty-body]

    @staticmethod
    def CONSTANT() -> int: ...  # type: ignore[empty-body]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    prepare_torch()
    found = Zygote.forked(meta=False)
    yield found
    found.close()


@pytest.fixture(params=["process", "here"])
def mine(request: pytest.FixtureRequest, zygote: Zygote) -> Iterator[Submission]:
    bounds = limits.Limits()
    host = zygote.host(bounds) if request.param == "process" else None
    channel: Channel = HostChannel(host, 30.0, bounds) if host else InProcess()
    submission = Submission(channel, Reference("reference"))
    submission.load(SOURCE.encode(), "layer.py", 3)
    yield submission
    if host:
        host.kill()


def test_gradients_cross_the_boundary_both_ways(mine: Submission) -> None:
    layer = mine.Layer(4)
    own = nn.Linear(4, 4)
    layer.load_state_dict(
        {name: own.state_dict()[name.removeprefix("linear.")] if name.startswith("linear.") else tensor
         for name, tensor in layer.state_dict().items()}
    )  # fmt: skip
    x = torch.randn(2, 4, requires_grad=True)
    x_own = x.detach().clone().requires_grad_()
    w = torch.randn(2, 4)
    y, (doubled, detached) = layer(x, use_cache=True)
    assert not detached.requires_grad
    ((y * w).sum() + doubled.sum()).backward()
    y_own = own(x_own)
    ((y_own * w).sum() + (2 * y_own).sum()).backward()
    assert torch.allclose(x.grad, x_own.grad, atol=1e-6)
    assert torch.allclose(layer.grads()["linear.weight"], own.weight.grad, atol=1e-6)
    assert layer.grads()["parts.0.weight"] is None
    layer.zero_grad()
    assert layer.grads()["linear.weight"] is None


def test_gradients_flow_through_what_one_call_returned_into_another(mine: Submission) -> None:
    x = torch.randn(3, requires_grad=True)
    (mine.scale(mine.scale(x, 3.0), factor=5.0)).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 15.0))


def test_no_grad_reaches_the_other_side(mine: Submission) -> None:
    with torch.no_grad():
        assert not mine.Layer(4)(torch.randn(1, 4))[0].requires_grad


def test_attributes_items_methods_and_modules(mine: Submission) -> None:
    layer = mine.Layer(4)
    layer(torch.zeros(1, 4))
    assert layer.calls == 1
    assert layer.number(5) == 10
    assert len(layer.parts) == 2
    assert layer.parts[1](torch.zeros(1, 4)).shape == (1, 3)
    assert layer.to(torch.float64)(torch.zeros(1, 4, dtype=torch.float64))[0].dtype == torch.float64
    assert layer.eval().training is False


def test_state_is_loaded_by_name_and_a_misfit_lists_what_was_found(mine: Submission) -> None:
    layer = mine.Layer(4)
    state = layer.state_dict()
    with pytest.raises(BadReturn, match=r"no parameter `gate` .*linear\.weight \(4, 4\)"):
        layer.load_state_dict({**state, "gate": torch.zeros(2)})
    with pytest.raises(BadReturn, match=r"`linear\.weight` has shape \(4, 4\); it must be \(4, 5\)"):
        layer.load_state_dict({**state, "linear.weight": torch.zeros(4, 5)})
    with pytest.raises(BadReturn, match=r"nobody asked for: linear\.bias"):
        layer.load_state_dict({name: tensor for name, tensor in state.items() if name != "linear.bias"})


def test_exceptions_arrive_as_what_they_were(mine: Submission) -> None:
    with pytest.raises(ValueError, match="width = 0"):
        mine.Layer(0)
    with pytest.raises(KeyError) as caught:
        mine.fail(torch.zeros(1))
    assert isinstance(caught.value, LearnerRaised)
    assert [frame.text for frame in caught.value.frames] == ['raise KeyError("no such head")']
    with pytest.raises(LearnerRaised, match="SystemExit"):
        mine.leave(torch.zeros(1))


def test_arguments_and_earlier_results_are_watched(mine: Submission) -> None:
    with pytest.raises(BadReturn, match="changed argument 1 in place"):
        mine.in_place(torch.ones(2))
    mine.kept(torch.ones(3))
    with pytest.raises(BadReturn, match="what an earlier call returned"):
        mine.kept(torch.zeros(3))


def test_generators_advance_as_theirs_did(mine: Submission) -> None:
    generator, own = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    assert torch.equal(mine.draw(3, generator), torch.rand(3, generator=own))
    assert torch.equal(torch.rand(2, generator=generator), torch.rand(2, generator=own))
    assert mine.global_rng_untouched()
    mine.draw_globally(2)
    assert not mine.global_rng_untouched()


def test_missing_names_wrong_kinds_and_wrong_returns_are_sentences(mine: Submission) -> None:
    with pytest.raises(MissingSymbol, match="does not define `Router`"):
        _ = mine.Router
    with pytest.raises(MissingSymbol, match="`CONSTANT` is a value in your file; it must be a function"):
        _ = mine.CONSTANT
    with pytest.raises(MissingSymbol, match="no method `extra`"):
        mine.Layer(4).extra()
    with pytest.raises(BadReturn, match=r"nothing returned None; it must return Tensor"):
        mine.nothing(torch.zeros(1))


class Forger:
    """A channel that answers with what it was given, whatever was asked."""

    def __init__(self, reply: wire.Reply) -> None:
        self._reply = reply

    def ask(self, request: wire.Request) -> wire.Reply:
        return wire.Loaded([("f", "function")]) if isinstance(request, wire.Load) else self._reply


@pytest.mark.parametrize(
    "reply",
    [
        wire.Loaded([]),
        wire.Gradients([]),
        wire.Returned(1, wire.TensorData("float32", [1], b"\0" * 4, slot=3)),
        wire.Returned(1, wire.TensorData("float32", [9], b"\0" * 4)),
        wire.Returned(1, 0.0, generators=[wire.GeneratorData(b"", 0)]),
    ],
)
def test_a_forged_reply_is_a_protocol_error(reply: wire.Reply) -> None:
    submission = Submission(Forger(reply))
    submission.load(b"", "f.py", 0)
    with pytest.raises((wire.ProtocolError, ValueError)):
        submission.f(torch.ones(1, requires_grad=True))


def test_a_foreign_value_equals_nothing() -> None:
    assert Foreign("x.Y") != Foreign("x.Y")


def test_a_host_is_gone_after_its_end(zygote: Zygote) -> None:
    host = zygote.host(limits.Limits())
    host.ask(wire.Load(b"import os", "a.py", 0), time.monotonic() + 20)
    pid = host.pid
    assert pid > 0
    host.kill()
    with pytest.raises(ProcessLookupError):
        __import__("os").kill(pid, 0)
