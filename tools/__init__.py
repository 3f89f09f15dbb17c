"""Programs for development: ``chaos`` disturbs workers, ``reference`` writes pages from the code. Not in the wheel."""
