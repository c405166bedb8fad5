"""Golden cases of released code (golden/cases), and the rule by which they are compared (golden/src/compare.rs)."""

import gzip
import json
from pathlib import Path

import torch

CASES = Path(__file__).resolve().parents[2] / "golden" / "cases"
TOLERANCE, TOLERANCE_FLOAT32, FLOOR = 2e-6, 2e-5, 1 / 8388608


def files(source):
    """Names of the files of a source that hold policy losses."""
    return sorted(path.name.removesuffix(".json.gz") for path in (CASES / source).glob("policy_loss*.json.gz"))


def cases(source, name):
    """The cases of a file, inputs that refer to an earlier case filled in."""
    with gzip.open(CASES / source / f"{name}.json.gz") as file:
        found = json.load(file)["cases"]
    for case in found:
        for key, value in case["inputs"].items():
            if isinstance(value, str):
                case["inputs"][key] = found[int(value.removeprefix("="))]["inputs"][key]
    return found


def tensor(values):
    return torch.tensor([float("nan") if value is None else value for value in values], dtype=torch.float32)


class Packed:
    """Inputs of a case: tokens `[N]`, and the same padded to `[B, T]`."""

    def __init__(self, case):
        self.inputs = case["inputs"]
        self.offsets = self.inputs["cu_seqlens"]
        self.lengths = [end - start for start, end in zip(self.offsets, self.offsets[1:])]
        self.spans = list(zip(self.offsets, self.offsets[1:]))
        self.mask = torch.tensor(self.inputs.get("loss_mask", [1] * self.offsets[-1]), dtype=torch.int32)

    def __contains__(self, name):
        return name in self.inputs

    def tokens(self, name):
        return tensor(self.inputs[name])

    @property
    def advantages(self):
        if "token_advantages" in self.inputs:
            return self.tokens("token_advantages")
        return tensor(self.inputs["seq_advantages"]).repeat_interleave(torch.tensor(self.lengths))

    def padded(self, values, fill=0.0, before=0):
        """`[B, T]` of tokens, with so many columns before them."""
        out = torch.full((len(self.lengths), before + max(self.lengths)), fill, dtype=values.dtype)
        for row, (start, end) in enumerate(self.spans):
            out[row, before : before + end - start] = values[start:end]
        return out

    def packed(self, values):
        return torch.cat([values[row, :length] for row, length in enumerate(self.lengths)])


def expected(case, name):
    """Each expected value of this name, and its tolerance: as the code computes it, and with its casts to float32 widened."""
    double = case.get("expected_float64")
    tables = [(case["expected"], TOLERANCE if double is None else TOLERANCE_FLOAT32), (double or {}, TOLERANCE)]
    for table, tolerance in tables:
        for part in name.split("."):
            table = table.get(part) if table else None
        if table is not None:
            yield table, tolerance


def differs(got, want, tolerance, rows=None, terms=0.0):
    """What is wrong, or None: relative to the largest, and each element to itself above a floor of the largest of its row."""
    got = torch.as_tensor(got, dtype=torch.float64).reshape(-1).tolist()
    want = [float("nan") if x is None else float(x) for x in (want if isinstance(want, list) else [want])]
    assert len(got) == len(want)
    largest = max([terms, *(abs(x) for x in want)])
    for start, end in rows or [(0, len(want))]:
        floor = FLOOR * max([terms, *(abs(x) for x in want[start:end])], default=0.0)
        for i in range(start, end):
            a, b = got[i], want[i]
            if a == b or abs(a - b) < torch.finfo(torch.float32).tiny or (a != a and b != b):
                continue
            if not (abs(a - b) <= tolerance * largest and abs(a - b) <= tolerance * abs(b) + floor):
                return f"[{i}] is {a}, expected {b}"
    return None


def check(case, name, got, rows=None, terms=0.0):
    """Fails unless `got` is what the case expects; a number that is a sum is held against the magnitude of its terms where it misses itself."""
    found = list(expected(case, name))
    assert found, f"no {name} in the case"
    for want, tolerance in found:
        wrong = differs(got, want, tolerance, rows)
        if wrong and terms:
            wrong = differs(got, want, tolerance, rows, terms)
        assert wrong is None, f"{name}{wrong}"
