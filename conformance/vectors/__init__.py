"""Runs the recorded vectors of Kafka Connect's own classes against ours.

Start from:

- ``main`` (``__main__``): ``python -m conformance.vectors FILE...``.
- ``run_one_by_one``, ``run_shuffled`` (``runner``): one record a batch, or all of a configuration in one.
- ``PipelineAdapter`` (``adapter``): records through the pipeline as a worker would send them; ``config_kind`` and
  ``data_kind`` are vectors that need no Spark.
- ``judge`` (``compare``): whether an outcome is Java's; ``load_deviations`` (``deviations``): where it need not be.

The vectors themselves are in ``tests/data/vectors``. Random chains, compared with Java as it runs, are in ``python -m
differential``.
"""
