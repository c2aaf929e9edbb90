"""From documents to arrays of one fixed shape: padded, or packed."""
