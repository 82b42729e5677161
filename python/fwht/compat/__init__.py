"""Modules with the names and habits of published ones, for code that was written for them."""
