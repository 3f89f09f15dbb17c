"""The command `bin/bench shapes`: CPU time a record of whole workers, by the shape of their messages.

- `messages`: the shapes, and their messages in each format.
- `workers`: measures one way of records through a worker, Penstock's or Java's.
- `plugins`, `CountingSink.java`, `ShapeSource.java`: the connectors of both.
- `here`: the pipeline of a sink by itself, in this process; continuous integration holds two of its figures.
- `command`: what the command does.
"""
