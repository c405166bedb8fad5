"""Gradients are closed forms: a second derivative is an error, never zeros."""

import pytest

torch = pytest.importorskip("torch")

import lockstep.torch  # noqa: E402
from lockstep import logits, routing  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

LABELS, IDS = torch.tensor([1, 0, 5]), torch.tensor([[1, 0], [5, 3], [7, 2]])


def loss(values, metrics):
    return lockstep.torch.loss("dapo", torch.ones(3), logp=-values.abs(), logp_old=-torch.ones(3, 8), metrics=metrics).loss


FUNCTIONS = {
    "logp": lambda values: logits.statistics(values, LABELS).logp.sum(),
    "entropy": lambda values: logits.statistics(values, LABELS, entropy=True).entropy.sum(),
    "in place": lambda values: logits.statistics(values.clone(), LABELS, inplace_backward=True).logp.sum(),
    "kl": lambda values: logits.kl(values, torch.zeros(3, 8)).sum(),
    "gates": lambda values: routing.gates(values, IDS, top_k=2)[0].square().sum(),
    "balance loss": lambda values: routing.balance_loss(values, torch.full((8,), 0.125), 0.1),
    "loss": lambda values: loss(values, False),
    "loss with metrics": lambda values: loss(values, True),
}

WAYS = {
    "backward": lambda of, at: torch.autograd.grad(of(at), at, create_graph=True)[0].sum().backward(),
    "unused inputs allowed": lambda of, at: torch.autograd.grad(
        torch.autograd.grad(of(at), at, create_graph=True)[0].sum(), at, allow_unused=True
    ),
    "by the gradient's factor": lambda of, at: torch.autograd.grad(
        of(at) * (one := torch.ones((), requires_grad=True)), at, create_graph=True
    )[0].sum().backward(inputs=[one]),
    "hessian": torch.autograd.functional.hessian,
    "hvp": lambda of, at: torch.autograd.functional.hvp(of, at, torch.ones_like(at)),
}


class Dispatched(TorchDispatchMode):
    """Sends operators through torch's dispatcher."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize("dispatched", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_it_is_an_error(function, way, dispatched):
    at = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def run():
        with pytest.raises(RuntimeError, match="cannot be differentiated again"):
            WAYS[way](FUNCTIONS[function], at)

    if dispatched:
        with Dispatched():
            run()
    else:
        run()
