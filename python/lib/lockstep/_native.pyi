"""
The native module of `lockstep`: what its modules in Python call.
"""

from _typeshed import SupportsGetItem, SupportsLenAndGetItem
from typing import Any, Final, SupportsFloat, SupportsIndex, final

__all__ = ["version", "Device", "Moments", "Plan", "Prepared", "Recipe", "Router", "RoutingTrace", "Totals", "balance_loss", "columns", "counts", "draw_tokens", "gating_backward", "gating_forward", "logits_gradient", "logits_kl", "logits_statistics", "metrics", "names", "prefix_tree"]

version: Final[str]
"""
Of the package.
"""

@final
class Device:
    """
    Where a plan runs.
    """
    def __new__(cls, /, name: str, threads: SupportsIndex | None = None) -> Device:
        """
        By name (`cpu`, `cuda:1`, `rocm:0`); `threads` is for a CPU.
        """
    def __repr__(self, /) -> str: ...

@final
class Moments:
    """
    Count, Σx and Σx² of values, exactly, and their extremes: the same for any sharding. `+` merges.
    """
    def __add__(self, other: object, /) -> Moments:
        """
        Those of both.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /) -> Moments:
        """
        Of no rows.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    @property
    def count(self, /) -> int:
        """
        Values.
        """
    @staticmethod
    def from_bytes(bytes: SupportsGetItem[int, SupportsIndex]) -> Moments:
        """
        From such bytes.
        """
    @staticmethod
    def from_limbs(limbs: SupportsGetItem[int, SupportsIndex], maxima: SupportsLenAndGetItem[SupportsFloat | SupportsIndex]) -> Moments:
        """
        From what the ranks' limbs add up to, and the maxima.
        """
    def limbs(self, /) -> tuple[bytearray, list[float]]:
        """
        Integers of 64 bits to be added over ranks, as memory that an engine may write, and two numbers of which the maximum is
        taken.
        """
    @property
    def mean(self, /) -> float:
        """
        Their mean; 0 without values.
        """
    @staticmethod
    def of(values: tuple[SupportsIndex, SupportsIndex], rows: tuple[bool, tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex] | None], by: str) -> Moments:
        """
        Of values on the host, counted as a recipe's choice `advantage.whiten = by` does.
        """
    def to_bytes(self, /) -> bytes:
        """
        As bytes, the same for what is equal.
        """
    def variance(self, /, ddof: SupportsIndex) -> float:
        """
        Σ(x − mean)² / (n − ddof); 0 for too few values.
        """
    def whiten(self, /, values: tuple[SupportsIndex, SupportsIndex], rows: tuple[bool, tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex] | None], by: str, out: tuple[SupportsIndex, SupportsIndex]) -> None:
        """
        The values on the host, whitened by these moments into `out`, on the host too.
        """

@final
class Plan:
    """
    Launches over memory of a fixed size.
    """
    def alarms(self, /, device: Device, stream: SupportsIndex, workspace: tuple[SupportsIndex, SupportsIndex]) -> None:
        """
        Waits for `stream` and raises what a run without `wait` met: the stage and the row of the first bad value.
        """
    @property
    def host_stages(self, /) -> list[tuple[str, str]]:
        """
        `(call, key)` of each call that the host does.
        """
    @property
    def launches(self, /) -> list[str]:
        """
        Ops that are launched, in order.
        """
    def reads(self, /, column: SupportsIndex) -> bool:
        """
        Whether column number `column` is read.
        """
    @property
    def results(self, /) -> list[tuple[str, str, int, int]]:
        """
        `(name, type, elements, first byte)` of each result in the workspace.
        """
    def run(self, /, device: Device, stream: SupportsIndex, columns: SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex, SupportsIndex]], credit: tuple[tuple[SupportsIndex, SupportsIndex], bool, tuple[SupportsIndex, SupportsIndex] | None, tuple[SupportsIndex, SupportsIndex] | None, tuple[SupportsIndex, SupportsIndex] | None] | None, workspace: tuple[SupportsIndex, SupportsIndex], coef: tuple[SupportsIndex, SupportsIndex] | None, wait: bool) -> tuple[float, float | None] | None:
        """
        Enqueues the plan on `stream` and waits, so that a bad value is an exception; a GPU without `wait` returns at once, believes the offsets,
        and `alarms` asks later. `columns` are `(number, address, elements)`, `credit` is
        `(advantage, per_token, loss_mask, weights, returns)` with an address and a length each, `coef` where dL/dlogp goes if not into the
        workspace. Loss and value loss, of a CPU.
        """
    @property
    def workspace_bytes(self, /) -> int:
        """
        Bytes of the workspace, whose address is a multiple of 256.
        """

@final
class Prepared:
    """
    A plan of the loss alone on a CPU, and the columns that it was called with.
    """
    def __new__(cls, /, plan: Plan, device: Device, columns: SupportsGetItem[int, tuple[SupportsIndex | None, str, Any]], added: tuple[SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex, SupportsIndex]], Any], credit: SupportsLenAndGetItem[Any | None], per_token: bool) -> Prepared:
        """
        `columns` are those of the call by number (None: not read) and name, `added` the offsets beside them and what holds
        them; `credit` is advantage,
        loss mask, weights, returns.
        """
    def run(self, /, columns: dict, credit: tuple, coef: SupportsIndex) -> float | None:
        """
        Writes dL/dlogp to `coef`, an address, and returns the loss; None where a tensor is another than the expected.
        """

@final
class Recipe:
    """
    One choice for each stage from rewards to gradients.
    """
    def __new__(cls, /, source: str) -> Recipe:
        """
        By name, or read from TOML.
        """
    def duties(self, /) -> list[tuple[str, str]]:
        """
        `(name, meaning)` of each thing that the training loop must do.
        """
    @staticmethod
    def from_json(source: str) -> Recipe:
        """
        From JSON, whose keys are those of TOML.
        """
    @property
    def name(self, /) -> str: ...
    def needs(self, /) -> list[tuple[str, str, str, bool, str | None]]:
        """
        `(column, stage, call, required, other column that does as well)` of each column that is read.
        """
    @property
    def per_token(self, /) -> bool:
        """
        Whether advantages are per token.
        """
    def plan(self, /, calls: str, size: SupportsLenAndGetItem[SupportsIndex], metrics: bool, token_loss: bool) -> Plan:
        """
        The launches of calls `advantages`, `loss` or `both` for batches of this very size.
        """
    @property
    def toml(self, /) -> str:
        """
        As TOML.
        """

@final
class Router:
    """
    A router: its shape and its rule.
    """
    def __new__(cls, /, kind: str, experts: SupportsIndex, top_k: SupportsIndex, scale: SupportsFloat | SupportsIndex = 1.0, groups: SupportsIndex = 1, top_groups: SupportsIndex = 1) -> Router:
        """
        `kind` is softmax_chosen, softmax_all, sigmoid_normalized, sigmoid or sqrt_softplus.
        """

@final
class RoutingTrace:
    """
    Which experts ran: `[tokens, layers, top_k]`, packed like the tokens, a byte or two an entry.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, experts: SupportsIndex, layers: SupportsIndex, top_k: SupportsIndex) -> RoutingTrace:
        """
        Without tokens.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    def append_absent(self, /, tokens: SupportsIndex) -> None:
        """
        Appends tokens without a record: the live router chooses there.
        """
    def append_padding(self, /, tokens: SupportsIndex) -> None:
        """
        Appends tokens of padding, whose experts are spread over all.
        """
    @property
    def entries(self, /) -> bytes:
        """
        The entries, little-endian, a byte each up to 256 experts (255 for top_k = 1), else two; what is nothing but ones is missing.
        """
    @property
    def experts(self, /) -> int: ...
    @staticmethod
    def from_ids(ids: tuple[SupportsIndex, SupportsIndex], tokens: SupportsIndex, experts: SupportsIndex, layers: SupportsIndex, top_k: SupportsIndex) -> RoutingTrace:
        """
        Of ids in 64 bits, `[tokens, layers, top_k]`; −1 = missing.
        """
    @staticmethod
    def from_safetensors(bytes: bytes) -> RoutingTrace:
        """
        From the bytes of a safetensors file.
        """
    def gate_kl(self, /, gates: tuple[SupportsIndex, SupportsIndex], other: RoutingTrace, other_gates: tuple[SupportsIndex, SupportsIndex]) -> dict:
        """
        KL of the gates that ran here against those of another trace, over routers that ran the same experts.
        """
    @property
    def layers(self, /) -> int: ...
    def load(self, /, sum_to_top_k: bool = False) -> list[float]:
        """
        How often each expert ran, of all layers together: shares that add up to 1, or to top_k.
        """
    def mismatch(self, /, other: RoutingTrace) -> dict:
        """
        How far another trace of the same tokens is from this one.
        """
    def replay_kl(self, /, router: Router, scores: tuple[SupportsIndex, SupportsIndex], bias: tuple[SupportsIndex, SupportsIndex] | None = None) -> dict:
        """
        What replaying this trace gives up against the live scores: ln of the mass of the live choice over the mass of the record.
        """
    def stitch(self, /, other: RoutingTrace, start: SupportsIndex, stop: SupportsIndex) -> None:
        """
        Appends the tokens from `start` to `stop` of another trace: those of a cached prefix, or of the next part of a partial rollout.
        """
    def to_safetensors(self, /) -> bytes:
        """
        The bytes of a safetensors file.
        """
    @property
    def tokens(self, /) -> int: ...
    @property
    def top_k(self, /) -> int: ...

@final
class Totals:
    """
    What is known of the loss and the metrics of a batch, exactly: the same for any sharding of its rows. `+` merges.
    """
    def __add__(self, other: object, /) -> Totals:
        """
        Those of both.
        """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /) -> Totals:
        """
        Of no rows.
        """
    def __reduce__(self, /) -> tuple[Any, tuple[bytes]]: ...
    def __repr__(self, /) -> str: ...
    @property
    def counts(self, /) -> list[int]:
        """
        Live tokens, sequences with any, all sequences.
        """
    @staticmethod
    def from_bytes(bytes: SupportsGetItem[int, SupportsIndex]) -> Totals:
        """
        From such bytes.
        """
    @staticmethod
    def from_limbs(limbs: SupportsGetItem[int, SupportsIndex], maxima: SupportsLenAndGetItem[SupportsFloat | SupportsIndex]) -> Totals:
        """
        From what the ranks' limbs add up to, and the maxima.
        """
    def limbs(self, /) -> tuple[bytearray, list[float]]:
        """
        Integers of 64 bits to be added over ranks, as memory that an engine may write, and two numbers of which the maximum is
        taken.
        """
    @property
    def loss(self, /) -> float | None:
        """
        The loss, rounded once; None where a shard was run without.
        """
    @property
    def metrics(self, /) -> dict | None:
        """
        The metrics; None where a shard was run without.
        """
    @staticmethod
    def of_rows(counts: SupportsLenAndGetItem[SupportsIndex], row_loss: tuple[SupportsIndex, SupportsIndex], metrics: tuple[tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex]] | None) -> Totals:
        """
        Of rows with these shares of the loss, and these sums and maxima of the metrics, on the host.
        """
    def to_bytes(self, /) -> bytes:
        """
        As bytes, the same for what is equal.
        """

def balance_loss(at: tuple[Device, SupportsIndex], coef: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    The load-balance loss coef · E Σ f P in `total`, with its `gradient` in the scores.
    """

def columns() -> list[tuple[str, str, str, str]]:
    """
    `(name, type, shape, meaning)` of each column, in the order of their numbers.
    """

def counts(cu_seqlens: tuple[SupportsIndex, SupportsIndex], mask: tuple[SupportsIndex, SupportsIndex] | None) -> list[int]:
    """
    Live tokens, sequences with any, all sequences; of a batch on the host.
    """

def draw_tokens(at: tuple[Device, SupportsIndex], vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, draws: SupportsIndex, seed: SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    `draws` tokens of each row, in `tokens`.
    """

def gating_backward(at: tuple[Device, SupportsIndex], router: Router, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    dL/dscores `gradient` from dL/dgates `coef`, for what `gating_forward` made of the same scores.
    """

def gating_forward(at: tuple[Device, SupportsIndex], router: Router, layers: SupportsIndex, layer: SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Experts `chosen` and their `gates` of rows of `scores`. With a `trace` of so many `layers` the rows of tokens in `mask` take their experts
    from layer `layer` of it, where it has a record.
    """

def logits_gradient(at: tuple[Device, SupportsIndex], vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    dL/dlogits from dL/dlogp `coef` and, if given, dL/dH `coef_entropy`, with the `state` that `logits_statistics` left.
    """

def logits_kl(at: tuple[Device, SupportsIndex], vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, over: str, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    KL divergence `value` of rows of `logits` and `reference`, over `policy` or `reference`; with `gradient` dL/dlogits from dL/dKL `coef`.
    """

def logits_statistics(at: tuple[Device, SupportsIndex], vocab: SupportsIndex, temperature: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> None:
    """
    Log-probability, logsumexp and top token of rows of logits, and the state of their gradient; with `entropy`, `collision` and
    `score_norm` these too.
    """

def metrics(tokens: SupportsIndex, sums: SupportsGetItem[int, SupportsFloat | SupportsIndex], maxima: SupportsLenAndGetItem[SupportsFloat | SupportsIndex]) -> dict:
    """
    The metrics of a loss from its sums over tokens.
    """

def names() -> list[str]:
    """
    Every recipe's name.
    """

def prefix_tree(device: Device, pad: SupportsIndex | None, eps: SupportsFloat | SupportsIndex, arrays: dict[str, tuple[SupportsIndex, SupportsIndex, SupportsIndex]]) -> tuple[int, int, int, list[int]]:
    """
    The prefix trees of a batch over memory of the host, into `order`, `lcp`, `value`, `counted`, `node`, `parent` and `leaf`; and the correction of each
    token in `token_advantage`, added to `advantage` of sequences and divided by `std` of groups plus `eps` where they are given.
    Returns branches, tokens that are shared, tokens of the trees, and branches by depth.
    """
