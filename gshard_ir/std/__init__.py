"""The standard library, written in the language itself: one ``.gshard`` file per module."""
