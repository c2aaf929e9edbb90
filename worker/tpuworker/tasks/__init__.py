"""From a column of records to documents of token ids: one file per task."""
