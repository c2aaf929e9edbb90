"""The commands: parse, call, print; one file for each, loaded when it is called."""
