"""ExtractNewRecordState, which takes rows out of Debezium's envelopes, and its settings."""
