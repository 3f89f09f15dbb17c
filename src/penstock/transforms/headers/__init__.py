"""Transforms of headers: DropHeaders, HeaderFrom, InsertHeader."""
