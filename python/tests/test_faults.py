"""A value that is refused, and what becomes of it: an exception, NaN on this rank alone, or 0 where a log-probability is above it."""

import warnings

import pytest
import torch

import lockstep
import lockstep.faults
import lockstep.torch
from lockstep.openrlhf import PolicyLoss


def batch(bad=None, at=(0, 2)):
    old = torch.tensor([[-0.5, -1.0, -0.2], [-2.0, -0.3, -0.9]])
    logp = old * 0.9
    if bad is not None:
        logp[at] = bad
    return dict(logp=logp.requires_grad_(), logp_old=old), torch.tensor([0.5, -0.5])


@pytest.fixture(autouse=True)
def unwarned(monkeypatch):
    monkeypatch.setattr(lockstep.faults, "_WARNED", [])


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), 1e-6])
def test_nan_where_a_value_is_refused_and_one_warning(bad):
    columns, advantages = batch(bad)
    with pytest.raises(lockstep.Error) as error:
        lockstep.torch.loss("dapo", advantages, **columns)
    assert (error.value.argument, error.value.index) == ("logp", 2)
    with pytest.warns(RuntimeWarning, match=r"`logp`\[2\]"):
        out = lockstep.torch.loss("dapo", advantages, on_error="nan", **columns)
    out.loss.backward()
    assert out.loss.isnan() and columns["logp"].grad.isnan().all() and out.coef.isnan().all()
    assert all(value != value for value in lockstep.torch.metrics(out.stats).values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lockstep.torch.loss("dapo", advantages, on_error="nan", **columns)


def test_nan_is_for_values_alone():
    columns, advantages = batch()
    assert lockstep.torch.loss("dapo", advantages, on_error="nan", **columns).loss.isfinite()
    with pytest.raises(lockstep.Error, match="logp_ref"):
        lockstep.torch.loss("nemo_kl", advantages, on_error="nan", **columns)
    with pytest.raises(lockstep.Error, match="expected 'raise' or 'nan'"):
        lockstep.torch.loss("dapo", advantages, on_error="zero", **columns)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="`on_error` is 'nan': expected 'raise' in a graph"):
        torch.compile(lambda: lockstep.torch.loss("dapo", advantages, on_error="nan", **columns).loss, backend="eager", fullgraph=True)()


def test_log_probabilities_above_0_are_refused_or_taken_as_0():
    columns, advantages = batch(0.01)
    with pytest.raises(lockstep.Error, match="expected a log-probability: finite and at most 0"):
        lockstep.torch.loss("dapo", advantages, **columns)
    out = lockstep.torch.loss("dapo", advantages, positive_logp="clamp", **columns)
    out.loss.backward()
    zero, _ = batch(0.0)
    same = lockstep.torch.loss("dapo", advantages, **zero)
    same.loss.backward()
    assert torch.equal(out.loss, same.loss) and torch.equal(out.coef, same.coef)
    gradient = zero["logp"].grad.clone()
    gradient[0, 2] = 0.0
    assert torch.equal(columns["logp"].grad, gradient) and zero["logp"].grad[0, 2] != 0.0
    with pytest.raises(lockstep.Error, match="`positive_logp` is 'allow'"):
        lockstep.torch.loss("dapo", advantages, positive_logp="allow", **columns)
    nan, _ = batch(float("nan"))
    with pytest.raises(lockstep.Error, match="finite"):
        lockstep.torch.loss("dapo", advantages, positive_logp="clamp", **nan)


def test_adapters_take_both_from_the_environment(monkeypatch):
    columns, advantages = batch(0.01)
    old, mask = columns["logp_old"], torch.ones(2, 3)
    tokens = advantages[:, None].expand(2, 3).contiguous()
    corrected = dict(enable_vllm_is_correction=True, vllm_is_truncated_threshold=[0.5, 2.0])
    with pytest.raises(lockstep.Error, match="logp"):
        PolicyLoss()(columns["logp"], old, tokens, mask)
    with monkeypatch.context() as environment:
        environment.setenv("LOCKSTEP_ON_ERROR", "nan")
        with pytest.warns(RuntimeWarning, match="`logp`"):
            assert PolicyLoss()(columns["logp"], old, tokens, mask)[0].isnan()
        # A bad value of the sampler, which the correction alone reads.
        sampler = old.clone()
        sampler[0, 1] = float("nan")
        assert PolicyLoss(**corrected)(batch()[0]["logp"], old, tokens, mask, sampler)[0].isnan()
    monkeypatch.setenv("LOCKSTEP_POSITIVE_LOGP", "clamp")
    assert PolicyLoss()(columns["logp"], old, tokens, mask)[0].isfinite()
    assert PolicyLoss(**corrected)(columns["logp"], old, tokens, mask, old + 1.0)[0].isfinite()


def one_of_two(rank, folder):
    """Rank 0 has a bad value; each reduces its gradient."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    columns, advantages = batch(float("nan") if rank == 0 else None)
    lockstep.torch.loss("dapo", advantages, on_error="nan", **columns).loss.backward()
    gradient = columns["logp"].grad
    assert gradient.isnan().all() if rank == 0 else gradient.isfinite().all()
    torch.distributed.all_reduce(gradient)
    assert gradient.isnan().all()
    torch.distributed.destroy_process_group()


def test_a_bad_value_on_one_rank_leaves_no_other_waiting(tmp_path):
    torch.multiprocessing.spawn(one_of_two, args=(str(tmp_path),), nprocs=2)
