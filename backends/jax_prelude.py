"""Helper functions that an emitted file carries when, and only when, it uses them.

Each is plain text: the emitted file stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable

_THREEFRY = '''
def threefry2x32(key, x0, x1):
    """Threefry-2x32, 20 rounds: two words of random bits per pair of counter words."""
    schedule = jnp.stack([key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)])
    turns = jnp.array([[13, 15, 26, 6], [17, 29, 16, 24]], jnp.uint32)

    def four_rounds(step, words):  # a loop, since XLA takes minutes over twenty rounds in a row
        x0, x1 = words
        for turn in turns[step % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << turn) | (x1 >> (32 - turn)))
        return x0 + schedule[(step + 1) % 3], x1 + schedule[(step + 2) % 3] + jnp.uint32(step + 1)

    return lax.fori_loop(0, 5, four_rounds, (x0 + key[0], x1 + key[1]))
'''

_UNIFORM = '''
def uniform(key, whole, shape, offsets=None):
    """Draws in [0, 1) at the positions of one block of a tensor of shape ``whole``.

    A draw depends on the key and the global position alone; equals jax.random.uniform(key, whole) there.
    """
    high = low = jnp.zeros(shape, jnp.uint32)
    for dim, size in enumerate(shape):
        at = lax.broadcasted_iota(jnp.uint32, shape, dim)
        if offsets is not None:
            at = at + jnp.uint32(offsets[dim])
        high, low = wide_multiply_add(high, low, whole[dim], at)
    first, second = threefry2x32(key, high, low)
    mantissa = ((first ^ second) >> 9) | jnp.uint32(0x3F800000)
    return lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0
'''

_WIDE = '''
def wide_multiply_add(high, low, factor, term):
    """(high, low) * factor + term on 64-bit numbers kept as two 32-bit words."""
    a, b = low & 0xFFFF, low >> 16
    c, d = jnp.uint32(factor & 0xFFFF), jnp.uint32(factor >> 16)
    middle = b * c + (a * c >> 16)
    cross = (middle & 0xFFFF) + a * d
    product = low * jnp.uint32(factor)
    carry = b * d + (middle >> 16) + (cross >> 16)
    total = product + term
    return high * jnp.uint32(factor) + carry + (total < product).astype(jnp.uint32), total
'''

_FOLD_IN = '''
def fold_in(key, data):
    """A new key from a key and an integer, as jax.random.fold_in makes it."""
    return jnp.stack(threefry2x32(key, jnp.uint32(0), data.astype(jnp.uint32)))
'''

_OWN_BLOCK = '''
def own_block(x, axes, dim, rows):
    """This device's ``rows`` rows of ``dim`` of a replicated x, zero rows added where the last block is short."""
    missing = rows * lax.axis_size(axes) - x.shape[dim]
    if missing:
        x = jnp.pad(x, [(0, missing if d == dim else 0) for d in range(x.ndim)])
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axes) * rows, rows, dim)
'''

_MASK_PADDING = '''
def mask_padding(x, axes, dim, size, value):
    """x with ``value`` in the rows of ``dim`` whose global position is at or past ``size``."""
    position = lax.axis_index(axes) * x.shape[dim] + jnp.arange(x.shape[dim], dtype=jnp.int32)
    inside = jnp.expand_dims(position < size, [d for d in range(x.ndim) if d != dim])
    return jnp.where(inside, x, value)
'''

_BLOCK_MOVES = '''
def block_moves(sizes, source, target):
    """(from, to) pairs that turn a split over the axes ``source`` into one over ``target``.

    Axes are positions in ``sizes``, major to minor; a device that already holds its block keeps it.
    """
    at = np.indices(sizes).reshape(len(sizes), -1)
    have = np.ravel_multi_index([at[a] for a in source], [sizes[a] for a in source])
    need = np.ravel_multi_index([at[a] for a in target], [sizes[a] for a in target])
    moves = have != need
    pairs = zip(np.lexsort((moves, have)), np.lexsort((moves, need)))
    return [(int(a), int(b)) for a, b in pairs]
'''

_COMBINE = '''
def all_combine(x, axes, combine):
    """All-reduce by ``combine`` (jnp.max, jnp.min, jnp.prod): exact for NaN, which XLA's own may drop on CPU.

    Sends what an all-reduce does: exchange pieces, combine them, gather the results.
    """
    n = lax.axis_size(axes)
    piece = -(-x.size // n)
    if x.size <= 2 * piece:
        return combine(lax.all_gather(x, axes), axis=0).astype(x.dtype)
    pieces = jnp.pad(x.ravel(), (0, piece * n - x.size)).reshape(n, piece)
    pieces = lax.all_to_all(pieces, axes, split_axis=0, concat_axis=0, tiled=True)
    pieces = combine(pieces, axis=0).astype(x.dtype)
    return lax.all_gather(pieces, axes, tiled=True)[: x.size].reshape(x.shape)
'''

_SCATTER_COMBINE = '''
def scatter_combine(x, axes, dim, combine):
    """Reduce-scatter of ``dim`` by ``combine`` (jnp.max, jnp.min, jnp.prod): exchange blocks, combine them."""
    n = lax.axis_size(axes)
    blocks = jnp.stack(jnp.split(x, n, axis=dim))
    blocks = lax.all_to_all(blocks, axes, split_axis=0, concat_axis=0, tiled=True)
    return combine(blocks, axis=0).astype(x.dtype)
'''

_EXCLUSIVE = '''
def exclusive(x, axis, fill, reverse=False):
    """x moved by a row along ``axis``, ``fill`` coming in: a scan that leaves out the element itself."""
    edges = [(0, 0, 0)] * x.ndim
    edges[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return lax.pad(x, jnp.array(fill, x.dtype), edges)
'''

_CONSTRAIN = '''
def constrain(x, mesh, spec):
    """x, which XLA is asked to lay out over ``mesh`` as ``spec`` says."""
    return lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
'''

HELPERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "threefry2x32": (_THREEFRY, ()),
    "wide_multiply_add": (_WIDE, ()),
    "uniform": (_UNIFORM, ("threefry2x32", "wide_multiply_add")),
    "fold_in": (_FOLD_IN, ("threefry2x32",)),
    "own_block": (_OWN_BLOCK, ()),
    "mask_padding": (_MASK_PADDING, ()),
    "block_moves": (_BLOCK_MOVES, ()),
    "all_combine": (_COMBINE, ()),
    "scatter_combine": (_SCATTER_COMBINE, ()),
    "exclusive": (_EXCLUSIVE, ()),
    "constrain": (_CONSTRAIN, ()),
}
"""Per helper its text and the helpers it needs, in the order they are written."""


def prelude(used: Iterable[str]) -> list[str]:
    """The texts of ``used`` helpers and of all they need, each once, in order of definition."""
    wanted: set[str] = set()
    queue = list(used)
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += HELPERS[name][1]
    return [text.strip("\n") for name, (text, _) in HELPERS.items() if name in wanted]
