"""onefold turns a deep ensemble into one network."""
