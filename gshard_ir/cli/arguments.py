"""A command-line parser that complains in our form, and remembers what it was given."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from gshard_ir.cli.usage import usage
from gshard_ir.data import nearest


class Parser(argparse.ArgumentParser):
    """A parser whose ``arguments``, in order, and ``commands``, by name, can be read off it.

    ``summary`` is the help that a subcommand was added with.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.arguments: list[argparse.Action] = []
        self.commands: dict[str, Parser] = {}
        self.summary = ""
        super().__init__(*args, **options)

    def add_argument(self, *args: Any, **options: Any) -> argparse.Action:
        """Add an argument as argparse does, and note it."""
        made = super().add_argument(*args, **options)
        self.arguments.append(made)
        return made

    def add_commands(self, **options: Any) -> Commands:
        """Make room for subcommands."""
        return Commands(self, **options)

    def error(self, message: str) -> NoReturn:
        help_ = f"{self.prog} --help"
        found = re.fullmatch(r"argument (.+?): invalid choice: '?(.*?)'? \(choose from (.*)\)", message, re.DOTALL)
        if found is None:
            raise usage(message, suggestion=help_)
        what, word = found[1].replace("COMMAND", "command"), found[2]
        choices = [choice.strip(" '\"") for choice in found[3].split(",")]
        near = nearest(word, choices)
        there = f"{help_} lists them" if what == "command" else f"there are {', '.join(choices)}"
        raise usage(f"{what} {word}: there is none", there, suggestion=near or help_)


class Commands:
    """The subcommands of a parser."""

    def __init__(self, parser: Parser, **options: Any) -> None:
        self._noted = parser.commands
        self._made = parser.add_subparsers(parser_class=Parser, **options)

    def add_parser(self, name: str, *, help: str, **options: Any) -> Parser:
        """Add a subcommand, with the line that the list of commands shows of it."""
        made = self._noted[name] = self._made.add_parser(name, help=help, **options)
        made.summary = help
        return made
