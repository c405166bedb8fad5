"""
The native module of `lockstep`, which its Python modules call.
"""

from _typeshed import SupportsGetItem, SupportsLenAndGetItem
from typing import Any, Final, SupportsFloat, SupportsIndex, final

__all__ = ["version", "Device", "Moments", "Plan", "Prepared", "Recipe", "Router", "RoutingTrace", "Totals", "balance_loss", "columns", "counts", "draw_tokens", "gating_backward", "gating_forward", "logits_gradient", "logits_kl", "logits_statistics", "metrics", "names", "prefix_tree", "vocab_parallel_statistics", "vocab_parallel_sums", "vocab_parallel_top"]

version: Final[str]
"""
The package's version.
"""

@final
class Device:
    """
    The device that a plan runs on.
    """
    def __new__(cls, /, name: str, threads: SupportsIndex | None = None) -> Device:
        """
        Opens a device by name (`cpu`, `cuda:1`, `rocm:0`); `threads` is for the CPU.
        """
    def __repr__(self, /) -> str: ...

@final
class Moments:
    """
    Exact count, Σx and Σx² of values, and their extremes; the same for any sharding. `+` merges two.
    """
    def __add__(self, other: object, /) -> Moments:
        """
        Merges two values.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /) -> Moments:
        """
        Makes an empty value, of no rows.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    @property
    def count(self, /) -> int:
        """
        The number of values.
        """
    @staticmethod
    def from_bytes(bytes: SupportsGetItem[int, SupportsIndex]) -> Moments:
        """
        Reads a value from the bytes of `to_bytes`.
        """
    @staticmethod
    def from_limbs(limbs: SupportsGetItem[int, SupportsIndex], maxima: SupportsLenAndGetItem[SupportsFloat | SupportsIndex]) -> Moments:
        """
        Makes a value from the summed limbs and the maxima.
        """
    def limbs(self, /) -> tuple[bytearray, list[float]]:
        """
        Returns 64-bit integers to sum over ranks, in writable memory, and two numbers to reduce with
        the maximum.
        """
    @property
    def mean(self, /) -> float:
        """
        The mean; 0 without values.
        """
    @staticmethod
    def of(values: tuple[SupportsIndex, SupportsIndex], rows: tuple[bool, tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex] | None], by: str) -> Moments:
        """
        Makes the moments of values in host memory, counted as for the recipe choice `advantage.whiten =
        by`.
        """
    def to_bytes(self, /) -> bytes:
        """
        Returns the value as bytes; equal values give equal bytes.
        """
    def variance(self, /, ddof: SupportsIndex) -> float:
        """
        Σ(x − mean)² / (n − ddof); 0 for too few values.
        """
    def whiten(self, /, values: tuple[SupportsIndex, SupportsIndex], rows: tuple[bool, tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex] | None], by: str, out: tuple[SupportsIndex, SupportsIndex]) -> None:
        """
        Whitens values by these moments into `out`; both are in host memory.
        """

@final
class Plan:
    """
    A plan: launches over memory of a fixed size.
    """
    def alarms(self, /, device: Device, stream: SupportsIndex, workspace: tuple[SupportsIndex, SupportsIndex]) -> None:
        """
        Waits for `stream` and raises an exception if a run without `wait` met a bad value, with the stage and
        row of the first.
        """
    @property
    def host_stages(self, /) -> list[tuple[str, str]]:
        """
        `(call, key)` of each call that runs on the host.
        """
    @property
    def launches(self, /) -> list[str]:
        """
        Names of the launched ops, in order.
        """
    def reads(self, /, column: SupportsIndex) -> bool:
        """
        Whether the plan reads column number `column`.
        """
    @property
    def results(self, /) -> list[tuple[str, str, int, int]]:
        """
        `(name, type, elements, byte offset)` of each result in the workspace.
        """
    def run(self, /, device: Device, stream: SupportsIndex, columns: SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex, SupportsIndex]], credit: tuple[tuple[SupportsIndex, SupportsIndex], bool, tuple[SupportsIndex, SupportsIndex] | None, tuple[SupportsIndex, SupportsIndex] | None, tuple[SupportsIndex, SupportsIndex] | None] | None, workspace: tuple[SupportsIndex, SupportsIndex], coef: tuple[SupportsIndex, SupportsIndex] | None, wait: bool) -> tuple[float, float | None] | None:
        """
        Enqueues the plan on `stream` and waits, so that a bad value raises an exception. Without `wait` a GPU
        returns at once and trusts the offsets; `alarms` reports bad values later. `columns` are `(number,
        address, elements)`; `credit` is `(advantage, per_token, loss_mask, weights, returns)`, arrays as
        `(address, elements)`; `coef` receives dL/dlogp, which otherwise goes to the workspace. On a CPU,
        returns the loss and the value loss.
        """
    @property
    def workspace_bytes(self, /) -> int:
        """
        Size of the workspace in bytes; its address must be a multiple of 256.
        """

@final
class Prepared:
    """
    A plan of the loss alone on a CPU, with the columns that it expects.
    """
    def __new__(cls, /, plan: Plan, device: Device, columns: SupportsGetItem[int, tuple[SupportsIndex | None, str, Any]], added: tuple[SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex, SupportsIndex]], Any], credit: SupportsLenAndGetItem[Any | None], per_token: bool) -> Prepared:
        """
        `columns` are the call's columns as `(number, name, tensor)`, where None as number means that the plan
        does not read it; `added` is the offsets that were added, and their owner; `credit` is advantage, loss
        mask, weights, returns.
        """
    def run(self, /, columns: dict, credit: tuple, coef: SupportsIndex) -> float | None:
        """
        Writes dL/dlogp to the address `coef` and returns the loss; returns None if a tensor is not the
        expected one.
        """

@final
class Recipe:
    """
    A recipe: one choice for each stage from rewards to gradients.
    """
    def __new__(cls, /, source: str) -> Recipe:
        """
        Opens a recipe by name, or reads it from TOML.
        """
    def duties(self, /) -> list[tuple[str, str]]:
        """
        `(name, meaning)` of each duty of the training loop.
        """
    @staticmethod
    def from_json(source: str) -> Recipe:
        """
        Reads a recipe from JSON with the keys of the TOML form.
        """
    @property
    def name(self, /) -> str: ...
    def needs(self, /) -> list[tuple[str, str, str, bool, str | None]]:
        """
        `(column, stage, call, required, alternative column)` of each column that the recipe reads.
        """
    @property
    def per_token(self, /) -> bool:
        """
        Whether the recipe makes one advantage per token.
        """
    def plan(self, /, calls: str, size: SupportsLenAndGetItem[SupportsIndex], metrics: bool, token_loss: bool) -> Plan:
        """
        Makes a plan of the calls `advantages`, `loss` or `both` for batches of exactly this size.
        """
    @property
    def toml(self, /) -> str:
        """
        All its choices as TOML.
        """

@final
class Router:
    """
    A router: its shape and its gating rule.
    """
    def __new__(cls, /, kind: str, experts: SupportsIndex, top_k: SupportsIndex, scale: SupportsFloat | SupportsIndex = 1.0, groups: SupportsIndex = 1, top_groups: SupportsIndex = 1) -> Router:
        """
        `kind` is softmax_chosen, softmax_all, sigmoid_normalized, sigmoid or sqrt_softplus.
        """

@final
class RoutingTrace:
    """
    The experts that ran: `[tokens, layers, top_k]`, packed like the tokens, one or two bytes per entry.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, experts: SupportsIndex, layers: SupportsIndex, top_k: SupportsIndex) -> RoutingTrace:
        """
        Makes a trace without tokens.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    def append_absent(self, /, tokens: SupportsIndex) -> None:
        """
        Appends tokens without a record; the live router chooses their experts.
        """
    def append_padding(self, /, tokens: SupportsIndex) -> None:
        """
        Appends padding tokens, whose entries are spread over all experts.
        """
    @property
    def entries(self, /) -> bytes:
        """
        The entries, little-endian: one byte each up to 256 experts (255 for top_k = 1), else two. All bits
        set means missing.
        """
    @property
    def experts(self, /) -> int: ...
    @staticmethod
    def from_ids(ids: tuple[SupportsIndex, SupportsIndex], tokens: SupportsIndex, experts: SupportsIndex, layers: SupportsIndex, top_k: SupportsIndex) -> RoutingTrace:
        """
        Makes a trace from 64-bit ids `[tokens, layers, top_k]`; −1 means missing.
        """
    @staticmethod
    def from_safetensors(bytes: bytes) -> RoutingTrace:
        """
        Reads a trace from the bytes of a safetensors file.
        """
    def gate_kl(self, /, gates: tuple[SupportsIndex, SupportsIndex], other: RoutingTrace, other_gates: tuple[SupportsIndex, SupportsIndex]) -> dict:
        """
        KL of this trace's gates against those of another trace, over routers that ran the same experts.
        """
    @property
    def layers(self, /) -> int: ...
    def load(self, /, sum_to_top_k: bool = False) -> list[float]:
        """
        How often each expert ran, over all layers: shares that sum to 1, or to top_k.
        """
    def mismatch(self, /, other: RoutingTrace) -> dict:
        """
        Compares this trace with another one of the same tokens.
        """
    def replay_kl(self, /, router: Router, scores: tuple[SupportsIndex, SupportsIndex], bias: tuple[SupportsIndex, SupportsIndex] | None = None) -> dict:
        """
        The cost of replaying this trace on the live scores: ln(mass of the live choice / mass of the recorded
        choice).
        """
    def stitch(self, /, other: RoutingTrace, start: SupportsIndex, stop: SupportsIndex) -> None:
        """
        Appends tokens `start` to `stop` of another trace: a cached prefix, or the next part of a partial
        rollout.
        """
    def to_safetensors(self, /) -> bytes:
        """
        Returns the trace as the bytes of a safetensors file.
        """
    @property
    def tokens(self, /) -> int: ...
    @property
    def top_k(self, /) -> int: ...

@final
class Totals:
    """
    The exact loss and metrics of a batch's rows, the same for any sharding. `+` merges two.
    """
    def __add__(self, other: object, /) -> Totals:
        """
        Merges two values.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /) -> Totals:
        """
        Makes an empty value, of no rows.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    @property
    def counts(self, /) -> list[int]:
        """
        Numbers of live tokens, of sequences with a live token, and of sequences.
        """
    @staticmethod
    def from_bytes(bytes: SupportsGetItem[int, SupportsIndex]) -> Totals:
        """
        Reads a value from the bytes of `to_bytes`.
        """
    @staticmethod
    def from_limbs(limbs: SupportsGetItem[int, SupportsIndex], maxima: SupportsLenAndGetItem[SupportsFloat | SupportsIndex]) -> Totals:
        """
        Makes a value from the summed limbs and the maxima.
        """
    def limbs(self, /) -> tuple[bytearray, list[float]]:
        """
        Returns 64-bit integers to sum over ranks, in writable memory, and two numbers to reduce with
        the maximum.
        """
    @property
    def loss(self, /) -> float | None:
        """
        The loss, rounded once; None if a shard was computed without its loss.
        """
    @property
    def metrics(self, /) -> dict | None:
        """
        The metrics; None if a shard was computed without metrics.
        """
    @staticmethod
    def of_rows(counts: SupportsLenAndGetItem[SupportsIndex], row_loss: tuple[SupportsIndex, SupportsIndex], metrics: tuple[tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex]] | None) -> Totals:
        """
        Makes totals from each row's share of the loss and its sums and maxima of the metrics, in host
        memory.
        """
    def to_bytes(self, /) -> bytes:
        """
        Returns the value as bytes; equal values give equal bytes.
        """

def balance_loss(at: tuple[Device, SupportsIndex], coef: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes the load-balance loss coef · E Σ f P into `total`, and its `gradient` in the scores.
    """

def columns() -> list[tuple[str, str, str, str]]:
    """
    `(name, type, shape, meaning)` of each column, in the order of their numbers.
    """

def counts(cu_seqlens: tuple[SupportsIndex, SupportsIndex], mask: tuple[SupportsIndex, SupportsIndex] | None) -> list[int]:
    """
    Counts live tokens, sequences with a live token, and sequences of a batch in host memory.
    """

def draw_tokens(at: tuple[Device, SupportsIndex], vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, draws: SupportsIndex, seed: SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Draws `draws` tokens from each row into `tokens`.
    """

def gating_backward(at: tuple[Device, SupportsIndex], router: Router, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes dL/dscores `gradient` from dL/dgates `coef`, for the results of `gating_forward` on the same
    scores.
    """

def gating_forward(at: tuple[Device, SupportsIndex], router: Router, layers: SupportsIndex, layer: SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes the experts `chosen` and their `gates` for rows of `scores`. With a `trace` of `layers` layers,
    tokens in `mask` take their experts from its layer `layer`, where it has a record.
    """

def logits_gradient(at: tuple[Device, SupportsIndex], format: str, vocab: SupportsIndex, vocab_start: SupportsIndex | None, temperature: SupportsFloat | SupportsIndex, wait: bool, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes dL/dlogits in `format` from dL/dlogp `coef` and, if given, dL/dH `coef_entropy`, with the `state`
    of `logits_statistics`; or with that of `vocab_parallel_statistics`, for a shard of the vocabulary that
    begins at `vocab_start`. On a GPU `gradient` may be the array `logits`. `wait` as for `logits_statistics`.
    """

def logits_kl(at: tuple[Device, SupportsIndex], vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, over: str, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes the KL divergence `value` of rows of `logits` and `reference`, over `policy` or `reference`; with
    `gradient`, also dL/dlogits from dL/dKL `coef`.
    """

def logits_statistics(at: tuple[Device, SupportsIndex], format: str, vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, wait: bool, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes log-probability, logsumexp and top token of rows of logits in `format`, and the state for their
    gradient; also `entropy`, `collision` and `score_norm`, if those arrays are given. Without `wait`, a GPU
    is not waited for, and a bad row is not an error.
    """

def metrics(tokens: SupportsIndex, sums: SupportsGetItem[int, SupportsFloat | SupportsIndex], maxima: SupportsLenAndGetItem[SupportsFloat | SupportsIndex]) -> dict:
    """
    Computes the metrics of a loss from its sums over tokens.
    """

def names() -> list[str]:
    """
    The names of all recipes.
    """

def prefix_tree(device: Device, pad: SupportsIndex | None, eps: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> tuple[int, int, int, list[int]]:
    """
    Builds the prefix trees of a batch in host memory, into `order`, `lcp`, `value`, `counted`, `node`,
    `parent` and `leaf`. Writes each token's correction to `token_advantage`; it is divided by the group's
    `std` plus `eps` and added to the sequence's `advantage`, if those are given. Returns the numbers of
    branches, of shared tokens and of tree tokens, and the branches by depth.
    """

def vocab_parallel_statistics(at: tuple[Device, SupportsIndex], temperature: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Computes the statistics of whole rows from `largest`, the maximum over ranks, and `sums`, the sum over
    ranks; also `entropy`, `collision` and `score_norm`, if those arrays are given.
    """

def vocab_parallel_sums(at: tuple[Device, SupportsIndex], format: str, vocab: SupportsIndex, vocab_start: SupportsIndex, temperature: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Sums over each row of a shard of the vocabulary, for rows whose largest entries are `largest`: `sums`,
    float64, `[4, rows]`, or `[8, rows]` with moments.
    """

def vocab_parallel_top(at: tuple[Device, SupportsIndex], format: str, vocab: SupportsIndex, vocab_start: SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Finds the largest entry of each row of a shard of the vocabulary, and its token: `largest`, int64, whose
    maximum over ranks is that of the row.
    """
