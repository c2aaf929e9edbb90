"""From a wish to a running JobSet; never loads an accelerator library."""
