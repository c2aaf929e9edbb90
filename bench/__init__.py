"""Measures the loader beside its peers, the launcher beside kubectl, and what both cost as the work grows."""
