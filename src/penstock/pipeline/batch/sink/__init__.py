"""The sink path: messages through converters and transforms to a task's records or frames.

Start from ``SinkPipeline`` (``path``). ``frames_of`` (``frames``) makes the frames of a frame task; ``ahead`` has the
plan run between Python workers.
"""
