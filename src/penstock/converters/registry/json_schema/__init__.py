"""JSON Schema: ``codec`` compiles a schema; ``schemas`` and ``values`` convert both ways."""
