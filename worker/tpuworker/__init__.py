"""What runs in the container: from a pod's environment to device batches; never loads a cluster library."""
