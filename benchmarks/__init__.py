"""Measurements: ratios against a peer in one run, and how planning grows. Run with ``make bench``."""
