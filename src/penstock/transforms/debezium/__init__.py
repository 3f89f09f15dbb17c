"""ExtractNewRecordState, which extracts rows from Debezium's envelopes.

``ExtractNewRecordState`` (``extract_new_record_state``) implements the rules. ``settings`` has the settings, including
Debezium's deprecated ones.
"""
