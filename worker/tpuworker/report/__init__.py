"""What a worker tells: lines for people and machines, last words, metrics, and a page about the run."""

from tpuworker.report.lines import Reporter, last_words, to_line, write_last_words

__all__ = ["Reporter", "last_words", "to_line", "write_last_words"]
