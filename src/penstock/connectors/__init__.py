"""The built-in connectors, written as a user's own would be.

- ``file``: the FileStream source and sink, lines of a file to a topic and values of a topic to a file. It is the model
  for authors.
- ``directory``: a source that shares the files of watched directories among its tasks.

They import ``penstock.api``, ``penstock.data``, ``penstock.config``, ``penstock.errors`` and libraries, and nothing
else of Penstock; import-linter checks it. What runs them is in ``penstock.worker``; their names are in
``penstock.plugins.kinds``.
"""
