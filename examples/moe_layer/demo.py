"""GShard's MoE layer on names in 100 languages, on 8 devices, against the same program on one.

Usage:

    python demo.py                              # 8 fake CPU devices where there are no real ones
    python demo.py --mesh data=2,expert=4
    python demo.py --input own.npz              # x [G, S, M] or [batches, G, S, M]; wg, wi, wo if you have them
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import names
import numpy as np
import numpy.typing as npt

import gshard_ir as gs

HERE = Path(__file__).parent
SIZES = {"G": 8, "S": 64, "M": 256, "E": 8, "H": 1024}
Array = npt.NDArray[np.float32]


def main() -> int:
    options = parse()
    try:
        arrays = read(options.input) if options.input else {"x": names_as_tokens(options.batches, options.seed)}
        run(options, arrays)
    except gs.GShardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", type=mesh, default={"expert": 8}, help="default expert=8")
    parser.add_argument("--batches", type=positive, default=16, help="batches of G*S = 512 byte tokens (default 16)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample, the embedding and the weights")
    parser.add_argument("--input", help=".npz with x, and perhaps wg [M, E], wi [E, M, H], wo [E, H, M], all f32")
    return parser.parse_args()


def mesh(text: str) -> dict[str, int]:
    return {axis: int(size) for axis, size in (part.split("=") for part in text.split(","))}


def positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def names_as_tokens(count: int, seed: int) -> Array:
    """Sample names, say what they are, and return x [batches, G, S, M]."""
    everything = names.read_names()
    groups, size, dim = SIZES["G"], SIZES["S"], SIZES["M"]
    chosen = names.sample(everything, count * groups * size, seed)
    languages = len({name.language for name in everything})
    print(f"{len(everything):,} names of territories, languages and currencies in {languages} languages (from babel)")
    print(f"a sample: {len(chosen):,} names, {count * groups * size:,} byte tokens, {count} batches of", end=" ")
    print(f"x[G={groups}, S={size}, M={dim}]")
    for name in chosen[:: max(1, len(chosen) // 5)][:5]:
        print(f"  {name.language:4} {name.kind} {name.code}: {name.text}")
    return names.batches(chosen, (count, groups, size, dim), seed)


def read(path: str) -> dict[str, Array]:
    """Read the user's own arrays; x gets a leading dim of batches when it has none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise SystemExit(f"cannot read {path}: {error}") from None
    x = arrays.get("x")
    if x is None or x.ndim not in (3, 4):
        raise SystemExit(f"{path} must hold x [G, S, M] or [batches, G, S, M], found {list(arrays)}")
    arrays["x"] = x[None] if x.ndim == 3 else x
    print(f"{path}: " + ", ".join(f"{name} {value.dtype}{list(value.shape)}" for name, value in arrays.items()))
    return arrays


def sizes_of(arrays: Mapping[str, Array]) -> dict[str, int]:
    """Read G, S, M, E and H off the arrays where they are given."""
    sizes = dict(SIZES)
    for name, dims in {"wg": "ME", "wi": "EMH", "wo": "EHM"}.items():
        if name in arrays:
            sizes |= dict(zip(dims, arrays[name].shape, strict=False))
    return sizes | dict(zip("GSM", arrays["x"].shape[1:], strict=True))


def weights(sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Draw the router and the experts, as the layer is at the start of training."""
    rng = np.random.default_rng(seed + 1)
    model, experts, hidden = sizes["M"], sizes["E"], sizes["H"]
    shapes = {"wg": (model, experts), "wi": (experts, model, hidden), "wo": (experts, hidden, model)}
    return {n: rng.standard_normal(s, np.float32) * np.float32(s[-2] ** -0.5) for n, s in shapes.items()}


def run(options: argparse.Namespace, arrays: Mapping[str, Array]) -> None:
    sizes = sizes_of(arrays)
    p = {name: arrays.get(name, drawn) for name, drawn in weights(sizes, options.seed).items()}
    layer = gs.compile(HERE / "moe.gshard", mesh=options.mesh, defines=sizes)
    router = gs.compile(
        HERE / "routing.gshard", mesh=options.mesh, defines={n: v for n, v in sizes.items() if n != "H"}
    )
    print()
    print(layer.dump("partitioned"))

    taken: Any = 0
    unserved: Any = 0
    errors, seconds = {"y": 0.0, "aux": 0.0}, []
    for x in arrays["x"]:
        start = time.perf_counter()
        y, aux = (np.asarray(result) for result in layer(x=x, p=p, key=options.seed))
        seconds.append(time.perf_counter() - start)
        for name, sharded, whole in zip(errors, (y, aux), layer.reference(x=x, p=p, key=options.seed), strict=True):
            errors[name] = max(errors[name], float(np.abs(sharded - whole).max(initial=0)))
        here, nobody = (np.asarray(result) for result in router(x=x, wg=p["wg"], key=options.seed))
        taken, unserved = taken + here, unserved + nobody
    report(layer, taken, int(unserved), errors, seconds, tokens=len(arrays["x"]) * sizes["G"] * sizes["S"])


def report(
    layer: gs.Program, taken: Any, unserved: int, errors: Mapping[str, float], seconds: list[float], tokens: int
) -> None:
    moved = [c for c in layer.traffic().collectives if c.kind == "all_to_all"]
    print(f"the {len(moved)} all-to-alls, bytes sent per device in each step")
    for one in moved:
        print(f"  line {one.line}  {one.value:5} {one.sent:>9,.0f} B  {one.reason}")
    devices = int(np.prod(list(layer.mesh_sizes.values())))
    print(f"\n{len(seconds)} steps on {devices} devices, {1000 * float(np.median(seconds)):.0f} ms each (median)")
    print("  tokens per expert   " + "  ".join(f"{e}: {n:,}" for e, n in enumerate(taken)))
    dropped = 2 * tokens - int(taken.sum())
    print(f"  routes dropped      {dropped:,} of {2 * tokens:,} ({dropped / (2 * tokens):.1%}): their expert was full")
    print(f"  without an expert   {unserved:,} of {tokens:,} tokens ({unserved / tokens:.1%})")
    print("  largest error against the unsharded program   " + ", ".join(f"{n} {e:.1e}" for n, e in errors.items()))


if __name__ == "__main__":
    sys.exit(main())
