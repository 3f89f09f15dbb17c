"""The source path: records or frames of a task through transforms and converters to bytes.

``SourcePipeline`` (``path``). ``columns_of_table`` (``frame_input``) and ``frame_spark`` take frames; ``Assembly``
(``assembly``) joins results, row i for record i, with coordinates and headers, and what is written outside a plan.
"""
