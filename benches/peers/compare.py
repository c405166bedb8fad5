"""Times verl 0.9.1 (eager) and torch.compile on the workloads that `benches/examples/peers.rs` times for Lockstep.

Prints one table. Every policy loss is timed with its gradient, forward and backward. The inputs are similar but not
equal: verl's golden files compare numbers, this compares time. Each time is the best of several runs after warm-up.
"""

import json
import subprocess
import sys
import time

import torch
import torch._dynamo

THREADS = 2
torch.set_num_threads(THREADS)
# Allows a function as many specialisations as there are losses.
torch._dynamo.config.cache_size_limit = 64

import verl.trainer.ppo.core_algos as verl  # noqa: E402
from verl.trainer.config import AlgoConfig  # noqa: E402
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402


def best(run, seconds=1.0, least=5):
    """Time of the fastest run, in seconds; everything compared gets the same time budget."""
    run()
    run()
    fastest, spent, runs = float("inf"), 0.0, 0
    while runs < least or spent < seconds:
        begun = time.perf_counter()
        run()
        took = time.perf_counter() - begun
        fastest, spent, runs = min(fastest, took), spent + took, runs + 1
    return fastest


class Inputs:
    def __init__(self, sequences, length):
        generator = torch.Generator().manual_seed(20261121)
        shape = (sequences, length)
        self.tokens, self.sequences = sequences * length, sequences
        self.old = -3 * torch.rand(shape, generator=generator)
        self.logp = (self.old + 0.6 * torch.rand(shape, generator=generator) - 0.3).clamp(max=0)
        self.mask = (torch.rand(shape, generator=generator) > 0.1).float()
        self.advantage = (2 * torch.rand((sequences, 1), generator=generator) - 1).expand(shape).contiguous()
        self.values = torch.rand(shape, generator=generator)
        self.old_values = self.values + 0.1 * torch.rand(shape, generator=generator)
        self.returns = torch.rand(shape, generator=generator)
        self.rewards = torch.rand(shape, generator=generator)
        self.outcome = torch.zeros(shape)
        self.outcome[:, -1] = torch.rand(sequences, generator=generator).round()
        self.index = [str(i // 8) for i in range(sequences)]


def token_mean(loss, mask):
    return (loss * mask).sum() / mask.sum()


def sequence_mean(loss, mask):
    return ((loss * mask).sum(-1) / (mask.sum(-1) + 1e-8)).mean()


def ratio(logp, old):
    return torch.exp(torch.clamp(logp - old, -20, 20))


# The formulas as one would write them for torch.compile: no metrics, no host synchronisation.


def ppo(logp, old, advantage, mask):
    r = ratio(logp, old)
    loss = torch.maximum(-advantage * r, -advantage * torch.clamp(r, 0.8, 1.2))
    loss = torch.where(advantage < 0, torch.minimum(loss, -3.0 * advantage), loss)
    return token_mean(loss, mask)


def sapo(logp, old, advantage, mask):
    tau = torch.where(advantage > 0, 1.0, 1.05)
    gate = torch.sigmoid(tau * (ratio(logp, old) - 1)) * 4 / tau
    return sequence_mean(-gate * advantage, mask)


def gspo(logp, old, advantage, mask):
    mean = ((logp - old) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    s = torch.exp(torch.clamp(logp - logp.detach() + mean.detach(), max=10.0))
    return sequence_mean(torch.maximum(-advantage * s, -advantage * torch.clamp(s, 1 - 3e-4, 1 + 4e-4)), mask)


def cispo(logp, old, advantage, mask):
    return token_mean(-torch.clamp(ratio(logp, old), 0.8, 1.2).detach() * advantage * logp, mask)


def gpg(logp, old, advantage, mask):
    return token_mean(-advantage * logp, mask)


def dppo(valid):
    def loss(logp, old, advantage, mask):
        weight = torch.clamp(ratio(logp, old), max=3.0).detach() * valid(logp, old, advantage).float().detach()
        return token_mean(-advantage * weight * logp, mask)

    return loss


def tv(logp, old, advantage):
    moved = torch.exp(logp) - torch.exp(old)
    return torch.where(advantage > 0, moved <= 0.2, moved >= -0.2)


def kl(logp, old, advantage):
    p, q = torch.exp(logp), torch.exp(old)
    divergence = q * (old - logp) + (1 - q) * torch.log((1 - q + 1e-8) / (1 - p + 1e-8))
    return torch.where(advantage > 0, ~((divergence > 0.2) & (p >= q)), ~((divergence > 0.2) & (p <= q)))


def gmpo(logp, old, advantage, mask):
    d, sign = logp - old, torch.sign(advantage)
    d = sign * torch.minimum(sign * d, sign * torch.clamp(d, -0.2, 0.2))
    lengths = mask.sum(-1) + 1e-8
    return (-(advantage * mask).sum(-1) / lengths * torch.exp((d * mask).sum(-1) / lengths)).mean()


def kl_cov(logp, old, advantage, mask):
    count = mask.sum()
    centred = [x - (x * mask).sum() / count for x in (advantage, logp)]
    covariance = torch.where(mask > 0, centred[0] * centred[1], float("-inf")).detach().flatten()
    chosen = torch.zeros_like(covariance).scatter(0, torch.topk(covariance, max(1, mask.numel() * 2 // 10000)).indices, 1.0)
    d = logp - old
    return token_mean(-advantage * torch.exp(d) + chosen.view_as(d) * d.abs(), mask)


def clip_cov(logp, old, advantage, mask):
    count = mask.sum()
    r = torch.exp(logp - old)
    unclipped, clipped = -advantage * r, -advantage * torch.clamp(r, 0.8, 1.2)
    centred = [x - (x * mask).sum() / count for x in (advantage, logp)]
    covariance = (centred[0] * centred[1]).detach()
    candidate = (mask > 0) & (clipped <= unclipped) & (covariance > 1.0) & (covariance < 5.0)
    # Picks the wanted number at random without the host synchronisation that a permutation would need.
    drawn = torch.where(candidate, torch.rand_like(covariance), -1.0).flatten()
    top = torch.topk(drawn, max(1, mask.numel() * 2 // 10000))
    kept = torch.ones_like(drawn).scatter(0, top.indices, (top.values < 0).float())
    return token_mean(torch.maximum(unclipped, clipped) * kept.view_as(mask), mask)


def dro(logp, old, advantage, mask):
    return token_mean(0.05 * (logp - old) ** 2 - advantage * logp, mask)


LOSSES = {
    "ppo": ("vanilla", ppo, "token-mean"),
    "sapo": ("sapo", sapo, "seq-mean-token-mean"),
    "gspo": ("gspo", gspo, "seq-mean-token-mean"),
    "cispo": ("cispo", cispo, "token-mean"),
    "gpg": ("gpg", gpg, "token-mean"),
    "dppo_tv": ("dppo_tv", dppo(tv), "token-mean"),
    "dppo_kl": ("dppo_kl", dppo(kl), "token-mean"),
    "gmpo": ("geo_mean", gmpo, "token-mean"),
    "kl_cov": ("kl_cov", kl_cov, "token-mean"),
    "clip_cov": ("clip_cov", clip_cov, "token-mean"),
    "dro": ("dro", dro, "token-mean"),
}


def config():
    return ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2,
        clip_ratio_c=3.0, policy_loss=PolicyLossConfig(dro_beta=0.1),
    )


def policy_losses(inputs):
    """name -> (verl eager, torch.compile), in nanoseconds per token."""
    logp, actor = inputs.logp.clone().requires_grad_(True), config()
    rows = {}
    for name, (registered, formula, mode) in LOSSES.items():
        function = verl.get_policy_loss_fn(registered)

        def eager(function=function, mode=mode):
            logp.grad = None
            loss, _ = function(
                old_log_prob=inputs.old, log_prob=logp, advantages=inputs.advantage,
                response_mask=inputs.mask, loss_agg_mode=mode, config=actor,
            )
            loss.backward()

        compiled = torch.compile(formula)

        def fused(compiled=compiled):
            logp.grad = None
            compiled(logp, inputs.old, inputs.advantage, inputs.mask).backward()

        rows[name] = [best(run) * 1e9 / inputs.tokens for run in (eager, fused)]
    return rows


def values(inputs):
    vpreds = inputs.values.clone().requires_grad_(True)

    def eager():
        vpreds.grad = None
        loss, _ = verl.compute_value_loss(vpreds, inputs.returns, inputs.old_values, inputs.mask, 0.2)
        loss.backward()

    @torch.compile
    def formula(vpreds, returns, old, mask):
        clipped = torch.clamp(vpreds, old - 0.2, old + 0.2)
        return 0.5 * token_mean(torch.maximum((vpreds - returns) ** 2, (clipped - returns) ** 2), mask)

    def fused():
        vpreds.grad = None
        formula(vpreds, inputs.returns, inputs.old_values, inputs.mask).backward()

    return [best(run) * 1e9 / inputs.tokens for run in (eager, fused)]


def main():
    program, sequences, length = sys.argv[1], int((sys.argv[2:] or [512])[0]), int((sys.argv[3:] or [2048])[0])
    inputs = Inputs(sequences, length)
    # Lockstep runs first, because torch's threads keep spinning for a while after work.
    said = subprocess.run([program, str(sequences), str(length), str(THREADS)], check=True, capture_output=True, text=True)
    lockstep = {line["name"]: line["ns"] for line in map(json.loads, said.stdout.splitlines())}

    print(f"{sequences} sequences of {length} tokens, {THREADS} threads; torch {torch.__version__}, verl 0.9.1")
    print()
    print("| what | unit | Lockstep | verl eager | ratio | torch.compile | ratio |")
    print("|---|---|---|---|---|---|---|")

    def row(name, unit, eager, fused=None):
        own = lockstep[name]
        compiled = f"{fused:.3f} | {fused / own:.1f}" if fused else "| "
        print(f"| {name} | {unit} | {own:.3f} | {eager:.3f} | {eager / own:.1f} | {compiled} |", flush=True)

    rewards, mask = inputs.rewards, inputs.mask
    gae = best(lambda: verl.compute_gae_advantage_return(rewards, inputs.values, mask, 1.0, 0.95), least=2)
    if "gae" in lockstep:
        row("gae", "ns/token", gae * 1e9 / inputs.tokens)
    import numpy

    index, algorithm = numpy.array(inputs.index), AlgoConfig()
    for name, function in {
        "grpo": verl.compute_grpo_outcome_advantage,
        "rloo": verl.compute_rloo_outcome_advantage,
        "opo": verl.compute_opo_outcome_advantage,
        "grpo_passk": lambda rewards, mask, index: verl.compute_grpo_passk_outcome_advantage(rewards, mask, index, config=algorithm),
        "gpg": verl.compute_gpg_outcome_advantage,
        "reinforce_plus_plus_baseline": verl.compute_reinforce_plus_plus_baseline_outcome_advantage,
    }.items():
        took = best(lambda: function(inputs.outcome, mask, index), least=2)
        row(f"advantage_{name}", "us/sequence", took * 1e6 / sequences)
    for name, (eager, fused) in policy_losses(inputs).items():
        if name in lockstep:
            row(name, "ns/token", eager, fused)
    if "value_loss" in lockstep:
        row("value_loss", "ns/token", *values(inputs))


main()
