"""Networks by name, and those of the user's own."""
