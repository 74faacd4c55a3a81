"""A block that cannot be read hides nothing in the others, and they do not complain of its names."""

from __future__ import annotations

import pytest

from gshard_ir.api import check
from gshard_ir.errors import GShardError
from gshard_ir.source import SourceFile

BAD_SUM = "def other(x: f32[8], w: f32[5]) -> f32[8]:\n    return x + w\n"


def found(text: str, **options: object) -> list[tuple[int, str]]:
    with pytest.raises(GShardError) as error:
        check(SourceFile("t.gshard", text), **options)  # type: ignore[arg-type]
    return [(d.span.line if d.span else 0, d.message) for d in error.value.diagnostics]


def test_every_block_is_reported_in_source_order() -> None:
    text = (
        "def f(x: f32[8]) -> f32[8]:\n    return x +* 2\n\n"
        "def g(x: f32[8]) -> f32[8]:\n    return sofmax(x)\n\n"
        "def h(x: f32[8]) -> f32[8]:\n    return (x\n\n" + BAD_SUM
    )
    lines = found(text)
    assert [line for line, _ in lines] == [2, 5, 8, 11]
    assert lines[1][1] == "unknown name sofmax"


# A broken block, and intact ones that use what it would have declared.
ALONE = [
    ("def f(x: f32[8]:\n    return x\n", "def main(x: f32[8]) -> f32[8]:\n    return f(x)\n"),
    ("def main(x: f32[8]:\n    return x\n", "def f[N](x: f32[N], n: int) -> f32[N]:\n    return x * n\n"),
    ("dfe f(x: f32[8]):\n    return x\n", "def main(x: f32[8]) -> f32[8]:\n    return f(x)\n"),
    ("const A, B = 8 9\n", "def main(x: f32[A, B]) -> f32[A, B]:\n    return x * B\n"),
    ("const A = $\n", "const B = A + 1\ndef main(x: f32[B]) -> f32[A]:\n    return x\n"),
    ("struct P:\n    w f32[8]\n", "def main(p: P) -> f32[8]:\n    return p.w\n"),
    ("mesh(data=2 model=4)\n", "def main(x: f32[8@model:(2)2]) -> f32[8]:\n    return split(x, 0, data)\n"),
    ("mesh(data=2; model=4)\n", "def main(x: f32[8@model]) -> f32[8]:\n    return split(x, 0, 4)\n"),
    ("msh(data=2)\n", "def main(x: f32[8@data]) -> f32[8]:\n    return x\n"),
    (
        "from std.moe import capacity;\n",
        "const C = capacity(8, 4, 2.0)\ndef main(x: f32[C]) -> f32[C]:\n    return x\n",
    ),
    ("import jax.numpy as jnp\n", "def main(x: f32[8]) -> f32[8]:\n    return jnp.exp(x)\n"),
    ("@jit\ndef f(x: f32[8]:\n    return x\n", "def main(x: f32[8]) -> f32[8]:\n    return f(x)\n"),
]


@pytest.mark.parametrize(("broken", "intact"), ALONE, ids=[broken for broken, _ in ALONE])
@pytest.mark.parametrize("after", [False, True])
def test_nothing_follows_from_a_broken_block(broken: str, intact: str, after: bool) -> None:
    assert len(found(intact + broken if after else broken + intact)) == 1
    assert len(found(broken + intact + BAD_SUM)) == 2


def test_a_body_that_falls_to_column_1_is_one_error_of_its_def() -> None:
    text = "def main(x: f32[8]) -> f32[8]:\n    y = x * 2\nreturn y\n"
    assert [line for line, _ in found(text + BAD_SUM)] == [3, 5]


def test_overrides_of_what_is_missing_are_not_refused() -> None:
    text = "mesh(data=2 model=4)\nconst A = 8 9\ndef f(x: f32[8]:\n    return x\n"
    assert [line for line, _ in found(text, mesh={"model": 2}, defines={"A": 4}, entry="f")] == [1, 2, 3]
