"""Which rows, in which order, on which host; exact, elastic, resumable."""
