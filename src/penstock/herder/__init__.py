"""herder."""
