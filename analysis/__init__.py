"""Reads results folders (experiments/results/...) and turns them into tables, figures and one report.

Run from the repository root: `python -m analysis --help`. Every number keeps its provenance: folders from a
dirty build, from mixed sources or from an unfinished run are refused unless the caller asks for them by name.
"""
