"""The two grammars, as package data: ``gshard.lark`` (the language) and ``ir.lark`` (the IR's text)."""
