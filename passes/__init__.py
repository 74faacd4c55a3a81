"""Compiler passes: each module is one step from annotated program to local program."""
