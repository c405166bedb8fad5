"""Minimax polynomials of core/src/num, derived with mpmath only: `python3 minimax.py`.

Each polynomial is found by the Remez exchange on a dense Chebyshev grid, for a stated weight, then rounded to
binary32 one coefficient after the other, lowest degree first; after each rounding the rest is fitted again, so that the
free coefficients take up the rounding error of the fixed ones.
"""

import struct
import mpmath as mp

mp.mp.prec = 200
GRID = 1500


def bits(v):
    return struct.unpack("<I", struct.pack("<f", float(v)))[0]


def to_f32(v):
    return mp.mpf(struct.unpack("<f", struct.pack("<f", float(v)))[0])


def remez(target, weight, lo, hi, degree, fixed):
    """Coefficients c of degree `degree` that minimise max weight(x)·|target(x) - sum c_i x^i|; c[:len(fixed)] given."""
    xs = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / (GRID - 1)) for i in range(GRID)]
    first, free = len(fixed), degree + 1 - len(fixed)
    if free == 0:
        return list(fixed), max(abs(weight(x) * (target(x) - mp.polyval(fixed[::-1], x))) for x in xs)
    # Divide by x^first: the free part is then 1, x, x^2 ..., whose error alternates on any interval, 0 inside included.
    ws = [weight(x) * abs(x) ** first for x in xs]
    rest = [(target(x) - sum(c * x**i for i, c in enumerate(fixed))) / x**first for x in xs]
    pick = [round((GRID - 1) * (1 - mp.cos(mp.pi * (j + mp.mpf(1) / 2) / (free + 1))) / 2) for j in range(free + 1)]
    for _ in range(60):
        a = mp.matrix(free + 1, free + 1)
        b = mp.matrix(free + 1, 1)
        for row, k in enumerate(pick):
            for col in range(free):
                a[row, col] = ws[k] * xs[k] ** col
            a[row, free] = (-1) ** row
            b[row] = ws[k] * rest[k]
        sol = mp.lu_solve(a, b)
        c = [sol[i] for i in range(free)]
        err = [w * (t - mp.polyval(c[::-1], x)) for w, t, x in zip(ws, rest, xs)]
        # one extremum for each run of equal sign, then keep the free+1 neighbours that contain the largest
        runs = []
        for k, e in enumerate(err):
            if runs and (e > 0) == (err[runs[-1]] > 0):
                if abs(e) > abs(err[runs[-1]]):
                    runs[-1] = k
            else:
                runs.append(k)
        while len(runs) > free + 1:
            if len(runs) == free + 2:
                runs.pop(0 if abs(err[runs[0]]) < abs(err[runs[-1]]) else -1)
            else:
                j = min(range(len(runs) - 1), key=lambda i: min(abs(err[runs[i]]), abs(err[runs[i + 1]])))
                runs.pop(j)
                if 0 < j < len(runs):
                    runs.pop(j)
        if len(runs) < free + 1 or runs == pick:
            break
        pick = runs
    return list(fixed) + c, max(abs(e) for e in err)


def rounded(target, weight, lo, hi, degree, fixed):
    c = [mp.mpf(v) for v in fixed]
    _, ideal = remez(target, weight, lo, hi, degree, c)
    while len(c) <= degree:
        best, _ = remez(target, weight, lo, hi, degree, c)
        c.append(to_f32(best[len(c)]))
    _, got = remez(target, weight, lo, hi, degree, c)
    return c, ideal, got


def show(name, what, target, weight, lo, hi, degree, fixed):
    c, ideal, got = rounded(target, weight, mp.mpf(lo), mp.mpf(hi), degree, fixed)
    print(f"{name}: {what}")
    print(f"  on [{lo}, {hi}], degree {degree}")
    print(f"  weighted error 2^{float(mp.log(ideal, 2)):.2f} before and 2^{float(mp.log(got, 2)):.2f} after rounding")
    for i, v in enumerate(c):
        print(f"    c{i} = 0x{bits(v):08x}  {mp.nstr(v, 12)}")


def exp_tail(r):
    """(e^r - 1 - r) / r^2"""
    if abs(r) < 0.01:
        return mp.fsum(r**k / mp.factorial(k + 2) for k in range(30))
    return (mp.expm1(r) - r) / r**2


def ln_tail(f):
    """(ln(1+f) - f + f^2/2) / f^3"""
    if abs(f) < 0.01:
        return mp.fsum((-1) ** k * f**k / (k + 3) for k in range(40))
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def main():
    half = mp.mpf(1) / 2
    show("exp", "Q with e^r - 1 - r = r^2 Q(r); error of Q relative, so that expm1mx is relative too",
         exp_tail, lambda r: 1 / exp_tail(r), "-0.2880", "0.4060", 5, [half])
    show("ln", "P with ln(1+f) = f - f^2/2 + f^3 P(f); error of f^3 P relative to ln(1+f)",
         ln_tail, lambda f: abs(f**3 / mp.log1p(f)), "-0.33334", "0.33334", 8, [])
    print("constants:")
    ln2 = mp.log(2)
    print(f"  exp  LOG2_E 0x{bits(1 / ln2):08x}")
    near = to_f32(ln2)
    print(f"  exp  LN2_HI 0x{bits(near):08x}  LN2_LO 0x{bits(ln2 - near):08x}  (nearest)")
    short = mp.mpf(int(ln2 * 2**16)) / 2**16
    print(f"  ln   LN2_HI 0x{bits(short):08x}  LN2_LO 0x{bits(ln2 - short):08x}  (16 bits, so that k LN2_HI is exact)")


if __name__ == "__main__":
    main()
