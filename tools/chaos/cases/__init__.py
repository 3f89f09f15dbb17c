"""The faults of ``bin/chaos``, by what they come from: data, the surroundings, tasks, clients of the REST API."""
