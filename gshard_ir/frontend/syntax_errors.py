"""What the parser did not expect, said in words."""

from __future__ import annotations

from lark import Lark, Token, Tree, UnexpectedToken

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.frontend.blocks import Block, token_span
from gshard_ir.source import SourceFile


def parse_block(lark: Lark, file: SourceFile, block: Block) -> Tree[Token]:
    """Return the tree of one block; raise its first fault."""
    parser = lark.parse_interactive()
    for token in block.tokens:
        try:
            parser.feed_token(token)
        except UnexpectedToken:
            raise GShardError(Diagnostic(f"'{token}' is not expected here", token_span(file, token))) from None
    if block.fault is not None:
        raise GShardError(block.fault)
    tree: Tree[Token] = parser.feed_token(Token.new_borrow_pos("$END", "", block.tokens[-1]))
    return tree
