"""Networks by name: the reference networks and the user's own."""
