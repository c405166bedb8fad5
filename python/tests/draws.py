"""Random settings and batches, and what an adapter makes of them beside its framework."""

import random

import pytest
import torch

CASES = 120


class Draw(random.Random):
    """The draws of one seed: `choice` and `random` for settings, the methods below for tensors."""

    def __init__(self, seed):
        super().__init__(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def uniform_of(self, *shape):
        return torch.rand(*shape, generator=self.generator)

    def normal_of(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def logps(self, *shape):
        return -3 * self.uniform_of(*shape) - 0.01

    def near(self, logps, scale):
        return (logps + scale * self.normal_of(*logps.shape)).clamp(max=-1e-3)

    def mask(self, rows, width, least=1):
        """Rows may be empty; at least so many tokens of the batch are live."""
        share = self.choice([0.3, 0.7, 1.0])
        while (mask := self.uniform_of(rows, width) < share).sum() < least:
            share = 1.0
        return mask

    def row_advantages(self, rows):
        """One a row; some or all of them 0."""
        return self.normal_of(rows) * (self.uniform_of(rows) < self.choice([0.0, 0.7, 1.0, 1.0]))


def outcome(logp, run):
    """Loss, gradient and metrics of `run`, which takes log-probabilities and returns loss and metrics."""
    logp = logp.clone().requires_grad_()
    loss, metrics = run(logp)
    loss.backward()
    return loss.detach(), logp.grad, metrics


def check_same(theirs, ours, case, skip=frozenset()):
    """Fails, with the `case`, unless loss, gradient and metrics but those in `skip` are the same."""

    def named(what):
        return lambda said: f"{what} of {case}: {said}"

    loss, gradient, metrics = theirs
    own_loss, own_gradient, own_metrics = ours
    assert loss.isfinite() and gradient.isfinite().all(), f"the framework has no finite loss for {case}"
    torch.testing.assert_close(own_loss, loss, rtol=1e-4, atol=1e-6, msg=named("loss"))
    # A sigmoid that saturates has gradient 0 in the frameworks; ours keeps its e^-z.
    atol = 1e-6 * gradient.abs().max().item() + 1e-6
    torch.testing.assert_close(own_gradient, gradient, rtol=1e-3, atol=atol, msg=named("gradient"))
    for key in metrics.keys() - skip:
        about = pytest.approx(metrics[key], rel=1e-3, abs=1e-5, nan_ok=True)
        assert own_metrics[key] == about, named(key)("differs")
