"""Previews: a connector's chain tried on some records, without writing anything.

``Previewer`` (``previewer``) answers a request. It reads the first records of a source in a process that
``fork_server`` makes; ``ChainView`` (``chain``) takes the records through converters and transforms, step by step, and
``PreviewProcess`` (``chain``) does so in a process of its own if they need Spark plans.
"""
