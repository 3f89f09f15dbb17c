"""The source path: records or frames of a task through transforms and converters to bytes.

Start from ``SourcePipeline`` (``path``). ``frame_input`` takes frames; ``Assembly`` (``assembly``) joins results, row i
for record i, with coordinates and headers, and what is written outside a plan.
"""
