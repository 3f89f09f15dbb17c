"""ExtractNewRecordState, which takes rows out of Debezium's envelopes.

``ExtractNewRecordState`` (``extract_new_record_state``) has the rules.
``settings`` has the settings, with those that Debezium deprecates.
"""
