"""einsum and matmul: letters, ellipsis, several operands, and what to say when sizes differ."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend.lower_arith import Term
from gshard_ir.frontend.lower_builtins import Site, builtin
from gshard_ir.frontend.lower_emit import Emitter, broadcast_shape
from gshard_ir.frontend.lower_values import Item, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.source import Span

EXACT = 6
"""Up to so many operands the cheapest order of contractions is searched, above it chosen step by step."""
MAX_OPERANDS = 52


@dataclass(frozen=True)
class Operand:
    """An operand of an einsum: its letters, the tensor, where it stands and where its letters do."""

    letters: str
    value: Value
    span: Span
    letters_span: Span


@builtin("einsum(subscripts, *operands)")
def _einsum(s: Site) -> Item:
    text = s.args["subscripts"]
    if not isinstance(text, str):
        raise s.fail(
            f"the first argument is the subscripts, found {describe(text)}", "subscripts", suggestion='"ab,bc->ac"'
        )
    terms = list(s.rest)
    if len(terms) == 1 and isinstance(terms[0].item, tuple):
        terms = [Term(item, terms[0].span) for item in terms[0].item]
    operands, result = _parse(s, text, terms)
    operands, result = _spell_ellipsis(s, operands, result)
    _check_letters(s, operands, result)
    _check_sizes(s, operands)
    return contract(s.emit, operands, result, s.span)


def _parse(s: Site, text: str, terms: Sequence[Term]) -> tuple[list[Operand], str]:
    left, arrow, right = text.partition("->")
    if not arrow:
        raise s.fail("the subscripts do not say the result", "subscripts", suggestion=f'"{text}->{_implicit(text)}"')
    words = left.split(",")
    if len(words) > MAX_OPERANDS:
        message = f"{len(words):,} operands, at most {MAX_OPERANDS}"
        raise s.fail(message, "subscripts", suggestion="several einsums, one after the other")
    if len(words) != len(terms):
        named = f"{len(words)} {'operand' if len(words) == 1 else 'operands'}"
        raise s.fail(f"the subscripts name {named}, found {len(terms)}", "subscripts")
    operands, at = [], 0
    for word, term in zip(words, terms, strict=True):
        if not isinstance(term.item, Value):
            raise fail(f"einsum takes tensors, found {describe(term.item)}", term.span)
        if not term.item.dtype.is_numeric:
            edit = f"cast({text_of(term.span)}, f32)"
            raise fail(f"einsum multiplies numbers, found {term.item.type}", term.span, suggestion=edit)
        letters = word.replace(" ", "")
        operands.append(Operand(letters, term.item, term.span, _inside(s.where("subscripts"), text, at, word)))
        at += len(word) + 1
    for other in operands[1:]:
        if other.value.dtype != operands[0].value.dtype:
            raise GShardError(
                Diagnostic(
                    f"einsum: element types differ, {operands[0].value.type} and {other.value.type}",
                    other.span,
                    ("there is no implicit promotion between tensor types",),
                    f"cast({text_of(other.span)}, {operands[0].value.dtype})",
                    ((operands[0].span, f"this is {operands[0].value.type}"),),
                )
            )
    return operands, right.replace(" ", "")


def _implicit(text: str) -> str:
    """Return the result that numpy would take: letters that occur once, in order of the alphabet."""
    letters = [c for c in text if c.isalpha()]
    return ("..." if "..." in text else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))


def _inside(span: Span, text: str, at: int, word: str) -> Span:
    """Return the position of a word inside a string literal that is written right at ``span``."""
    if span.line != span.end_line or span.end_column - span.column != len(text) + 2:
        return span
    at += len(word) - len(word.lstrip())
    start = span.column + 1 + at
    return replace(span, column=start, end_column=start + max(1, len(word.strip())))


def _spell_ellipsis(s: Site, operands: list[Operand], result: str) -> tuple[list[Operand], str]:
    """Replace ``...`` by spare letters, one per dim it stands for; dims of size 1 that broadcast are dropped."""
    if not any("..." in o.letters for o in operands):
        if "..." in result:
            edit = f'"{",".join(o.letters for o in operands)}->{result.replace("...", "")}"'
            raise s.fail("the result has ... but no operand has", "subscripts", suggestion=edit)
        return operands, result
    if "..." not in result:
        text = ",".join(o.letters for o in operands)
        raise s.fail("the result leaves ... out", "subscripts", suggestion=f'"{text}->...{result}"')
    ranks = [o.value.type.rank - len(o.letters.replace("...", "", 1)) for o in operands]
    for o, rank in zip(operands, ranks, strict=True):
        if "..." in o.letters and rank < 0:
            raise _rank_error(o)
    spread = [
        o.value.shape[o.letters.index("...") :][:rank] if "..." in o.letters else ()
        for o, rank in zip(operands, ranks, strict=True)
    ]
    shape = broadcast_shape(spread)
    if shape is None:
        raise s.fail(f"the dims at ... do not broadcast: {' and '.join(map(str, spread))}", "subscripts")
    used = {c for o in operands for c in o.letters} | set(result)
    spare = [c for c in string.ascii_lowercase + string.ascii_uppercase if c not in used][: len(shape)]
    if len(spare) < len(shape):
        raise s.fail("more than 52 letters in all", "subscripts")
    spelled = []
    for o, own in zip(operands, spread, strict=True):
        if "..." not in o.letters:
            spelled.append(o)
            continue
        at = o.letters.index("...")
        names = spare[len(shape) - len(own) :]
        gone = [d for d, n in enumerate(own) if n == 1 and shape[len(shape) - len(own) + d] != 1]
        kept = [n for d, n in enumerate(o.value.shape) if d - at not in gone]
        value = s.emit.reshape(o.value, kept, o.span)
        word = "".join(c for d, c in enumerate(names) if d not in gone)
        spelled.append(replace(o, letters=o.letters[:at] + word + o.letters[at + 3 :], value=value))
    return spelled, result.replace("...", "".join(spare), 1)


def _rank_error(o: Operand) -> GShardError:
    letters, rank = o.letters.replace("...", ""), o.value.type.rank
    dims = f"{len(letters)} {'dim' if len(letters) == 1 else 'dims'}"
    return GShardError(
        Diagnostic(
            f'einsum: "{o.letters}" names {dims}, {text_of(o.span)} has {rank}',
            o.letters_span,
            (f"{text_of(o.span)} is {o.value.type}",),
            (letters + _spare(letters, rank - len(letters)))[:rank],
            also=((o.span, ""),),
        )
    )


def _spare(used: str, count: int) -> str:
    """Return letters of the alphabet that are not used."""
    return "".join([c for c in string.ascii_lowercase + string.ascii_uppercase if c not in used][: max(count, 0)])


def _check_letters(s: Site, operands: Sequence[Operand], result: str) -> None:
    known = "".join(o.letters for o in operands)
    for o in operands:
        if o.letters and not (o.letters.isascii() and o.letters.isalpha()):
            edit = "".join(dict.fromkeys(c for c in o.letters if c.isascii() and c.isalpha()))
            edit = (edit + _spare(known + result, o.value.type.rank - len(edit)))[: o.value.type.rank]
            raise fail(f'einsum names dims by single letters, found "{o.letters}"', o.letters_span, suggestion=edit)
        twice = next((c for c in o.letters if o.letters.count(c) > 1), None)
        if twice:
            edit = "".join(dict.fromkeys(o.letters))
            raise fail(
                f'einsum: letter {twice} stands twice in "{o.letters}"',
                o.letters_span,
                "a diagonal is not taken by repeating a letter",
                suggestion=edit + _spare(known + result, o.value.type.rank - len(edit)),
            )
        if len(o.letters) != o.value.type.rank:
            raise _rank_error(o)
    given = ",".join(o.letters for o in operands)
    for i, c in enumerate(result):
        if c in result[:i]:
            edit = f'"{given}->{"".join(dict.fromkeys(result))}"'
            raise s.fail(f'letter {c} stands twice in the result "{result}"', "subscripts", suggestion=edit)
        if c not in known:
            edit = f'"{given}->{"".join(k for k in result if k in known)}"'
            raise s.fail(f"letter {c} of the result is in no operand", "subscripts", suggestion=edit)


def _check_sizes(s: Site, operands: Sequence[Operand]) -> None:
    """Refuse a letter with two sizes, showing both operands and what would fit."""
    first: dict[str, tuple[int, Operand]] = {}
    for o in operands:
        for letter, n in zip(o.letters, o.value.shape, strict=True):
            size, owner = first.setdefault(letter, (n, o))
            if size == n:
                continue
            others = {c: m for p in operands if p is not o for c, m in zip(p.letters, p.value.shape, strict=True)}
            wanted = ", ".join(f"{c}={others.get(c, '?')}" for c in o.letters)
            raise GShardError(
                Diagnostic(
                    f"einsum: size of {letter} differs",
                    o.letters_span,
                    (_claim(owner, letter, size), _claim(o, letter, n)),
                    _fitting(s, o, operands, others) or f"a tensor with {wanted} in place of {text_of(o.span)}",
                    also=((owner.span, ""), (o.span, "")),
                )
            )


def _claim(o: Operand, letter: str, n: int) -> str:
    return f'"{o.letters}" says that {text_of(o.span)} has {letter} = {n}: it is {o.value.type}'


def _fitting(s: Site, o: Operand, operands: Sequence[Operand], sizes: dict[str, int]) -> str | None:
    """Suggest a name in scope, of none of the operands, whose tensor has the sizes that the others ask for."""
    taken = {p.value for p in operands}
    for name, value in s.emit.in_scope():
        if value in taken or value.dtype != o.value.dtype or value.type.rank != len(o.letters):
            continue
        if all(sizes.get(c, n) == n for c, n in zip(o.letters, value.shape, strict=True)):
            return f"{name}, which is {value.type}"
    return None


# ---- several operands


def contract(emit: Emitter, operands: Sequence[Operand], result: str, span: Span) -> Value:
    """Contract operands two at a time in the cheapest order; equal costs go to the earliest pair."""
    work = [(o.letters, o.value, o.span) for o in operands]
    sizes = {c: n for o in operands for c, n in zip(o.letters, o.value.shape, strict=True)}
    for i, j in _order([letters for letters, _, _ in work], result, sizes)[:-1] if len(work) > 2 else ():
        rest = "".join(letters for k, (letters, _, _) in enumerate(work) if k not in (i, j)) + result
        (a, x, x_span), (b, y, y_span) = work[i], work[j]
        out = "".join(c for c in dict.fromkeys(a + b) if c in rest)
        value = emit.op("einsum", x, y, span=span, where=(x_span, y_span), spec=f"{a},{b}->{out}")
        work = [w for k, w in enumerate(work) if k not in (i, j)] + [(out, value, span)]
    spec = ",".join(letters for letters, _, _ in work) + "->" + result
    return emit.op("einsum", *(v for _, v, _ in work), span=span, where=tuple(w for _, _, w in work), spec=spec)


def _order(words: Sequence[str], result: str, sizes: dict[str, int]) -> list[tuple[int, int]]:
    """Return which two operands to contract at each step; a product is appended at the end of the list."""
    if len(words) <= EXACT:
        return _search(tuple(words), result, sizes, {})[1]
    work, steps = list(words), []
    while len(work) > 1:
        i, j = min(_pairs(len(work)), key=lambda p: (_cost(work[p[0]] + work[p[1]], sizes), p))
        steps.append((i, j))
        work = _after(work, i, j, result)
    return steps


def _search(
    words: tuple[str, ...],
    result: str,
    sizes: dict[str, int],
    seen: dict[tuple[str, ...], tuple[int, list[tuple[int, int]]]],
) -> tuple[int, list[tuple[int, int]]]:
    if len(words) < 2:
        return 0, []
    if words not in seen:
        best: tuple[int, list[tuple[int, int]]] | None = None
        for i, j in _pairs(len(words)):
            here = _cost(words[i] + words[j], sizes)
            if best is None or here < best[0]:
                rest, steps = _search(tuple(_after(words, i, j, result)), result, sizes, seen)
                if best is None or here + rest < best[0]:
                    best = here + rest, [(i, j), *steps]
        assert best is not None
        seen[words] = best
    return seen[words]


def _pairs(n: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n) for j in range(i + 1, n))


def _cost(letters: str, sizes: dict[str, int]) -> int:
    return math.prod(sizes[c] for c in set(letters))


def _after(words: Sequence[str], i: int, j: int, result: str) -> list[str]:
    left = [w for k, w in enumerate(words) if k not in (i, j)]
    kept = "".join(left) + result
    return [*left, "".join(c for c in dict.fromkeys(words[i] + words[j]) if c in kept)]


# ---- matmul


@builtin("matmul(a, b)")
def _matmul(s: Site) -> Item:
    return matmul(s.emit, s.term("a"), s.term("b"), s.span)


def matmul(emit: Emitter, a: Term, b: Term, span: Span) -> Value:
    """Multiply matrices as `numpy.matmul` does: vectors at either end, leading dims broadcast."""
    for term in (a, b):
        if not isinstance(term.item, Value) or not term.item.shape:
            raise fail(
                f"@ multiplies matrices, found {describe(term.item)}",
                term.span,
                suggestion=f"{text_of(a.span)} * {text_of(b.span)}",
            )
    x, y = a.item, b.item
    assert isinstance(x, Value) and isinstance(y, Value)
    if x.dtype != y.dtype or not x.dtype.is_numeric:
        edit = f"cast({text_of(b.span)}, {x.dtype})" if x.dtype.is_numeric else f"cast({text_of(a.span)}, f32)"
        raise fail(f"@ of {x.type} and {y.type}: both must hold numbers of one type", span, suggestion=edit)
    inner = x.shape[-1], y.shape[-2] if y.type.rank > 1 else y.shape[0]
    if inner[0] != inner[1]:
        raise fail(
            f"@ of {x.type} and {y.type}: inner sizes differ",
            span,
            f"the last dim of {text_of(a.span)} is {inner[0]}, "
            f"the {'second last' if y.type.rank > 1 else 'only'} dim of {text_of(b.span)} is {inner[1]}",
            suggestion=_transposed(a, b, x, y),
        )
    batch = broadcast_shape([x.shape[:-2], y.shape[:-2]])
    if batch is None:
        raise fail(f"@ of {x.type} and {y.type}: leading dims do not broadcast", span)
    letters = string.ascii_lowercase[: len(batch)]
    left, right = ("m" if x.type.rank > 1 else "") + "k", "k" + ("n" if y.type.rank > 1 else "")
    left, right, result = left.upper(), right.upper(), (left[:-1] + right[1:]).upper()
    p = _batched(emit, a, x, left, letters, batch)
    q = _batched(emit, b, y, right, letters, batch)
    spec = f"{p[0]},{q[0]}->{letters}{result}"
    return emit.op("einsum", p[1], q[1], span=span, where=(a.span, b.span), spec=spec)


def _batched(emit: Emitter, term: Term, x: Value, word: str, letters: str, batch: tuple[int, ...]) -> tuple[str, Value]:
    """Name the leading dims of one side, dropping those of size 1 that the other side repeats."""
    own = x.type.rank - len(word)
    skip = len(batch) - own
    kept = [d for d in range(own) if x.shape[d] == batch[skip + d]]
    value = emit.reshape(x, [*(x.shape[d] for d in kept), *x.shape[own:]], term.span)
    return "".join(letters[skip + d] for d in kept) + word, value


def _transposed(a: Term, b: Term, x: Value, y: Value) -> str | None:
    """Suggest the transposition that makes two matrices fit, if one does."""
    if x.type.rank == y.type.rank == 2:
        if x.shape[1] == y.shape[1]:
            return f"{text_of(a.span)} @ transpose({text_of(b.span)})"
        if x.shape[0] == y.shape[0]:
            return f"transpose({text_of(a.span)}) @ {text_of(b.span)}"
    return None
