"""Small example trainers, one per backend: real attention, real loss, meant to be read and copied."""
