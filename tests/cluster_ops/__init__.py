"""What is read, explained and decided about a cluster, over plain dicts and recordings; no cluster needed."""
