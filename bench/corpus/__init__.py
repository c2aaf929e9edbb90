"""The texts everything is measured on: generated from a seed, or taken from the machine's own documentation."""
