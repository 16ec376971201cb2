"""Measurements of finished runs, from their folders: streamed, stored, and resumed if interrupted."""
