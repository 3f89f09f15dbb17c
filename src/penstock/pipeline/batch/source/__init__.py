"""The source path: records or frames of a task through transforms and converters to bytes.

``SourcePipeline`` (``path``). ``columns_of_table`` (``frame_input``) and ``frame_spark`` take frames; ``assembly`` has
coordinates and headers of the outcome, and what is written outside a plan.
"""
