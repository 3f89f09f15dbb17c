"""Reference pages that are made from the code: settings, transforms and converters, and the names that authors import.

Start from:

- ``page`` (``settings``): ``docs/configuration.md``.
- ``transforms_page``, ``converters_page`` (``plugins``): ``docs/transforms.md`` and ``docs/converters.md``. A test runs
  their examples (``*_examples.toml``, read by ``examples``, run by ``running``, in the ``notation`` of the pages).
- ``names``: the signatures that authors see; ``consoles``: the commands that pages show, run again.

Each page is committed; tests compare it with what the code says now. ``python -m tools.reference.settings``
and the like write them again. What the pages say of a class stands in its docstring.
"""
