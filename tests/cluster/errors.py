"""What goes wrong in the test cluster, said in one sentence with the remedy in it."""


class ClusterError(Exception):
    """The cluster cannot be built, started or used; the message says what was found and what to do."""


class UnfitHostError(ClusterError):
    """This host cannot run a cluster (rights, compiler, packages); a test session skips its cluster tests."""
