"""Each claim of ``docs/security.md`` is held by a test that is there."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest
from tests.unit.docs.pages import ROOT

_ACCESS: Final = "tests/unit/rest/test_access.py"
_SECRETS: Final = "tests/real/worker/test_secrets.py"
_PROVIDERS: Final = "tests/unit/config/test_providers.py"
_READ_ONLY: Final = (_ACCESS, "test_a_user_who_may_only_read_changes_validates_and_previews_nothing")
_REQUESTS: Final = "tests/unit/hostile/test_requests.py"
_GROWTH: Final = "tests/unit/hostile/test_growth.py"
_PLUGINS: Final = "tests/unit/hostile/test_plugins.py"
_NO_SECRET: Final = (_SECRETS, "test_no_secret_is_seen_wherever_it_was_given_and_whatever_fails")
_HOSTILE: Final = "tests/unit/hostile/test_client_settings.py"
_HIDDEN: Final = "tests/unit/hostile/test_secrets.py"
_TEXTS: Final = "tests/unit/hostile/test_texts_for_libraries.py"
_POLICIES: Final = (
    "tests/unit/validation/test_scenarios_validation.py",
    "test_policies_for_client_settings",
)
_FENCE: Final = "tests/real/hostile/test_sql.py"
#: The beginning of each claim, and the test that holds it.
CLAIMS: Final = {
    "Nobody is asked by default": (_ACCESS, "test_nobody_is_asked_by_default"),
    "With `rest.basic.auth.file`, every path": (
        _ACCESS,
        "test_basic_authentication_lets_known_users_pass_on_every_path",
    ),
    "A user whom `rest.basic.auth.read.only.users`": _READ_ONLY,
    "`PUT .../config/validate` and previews": _READ_ONLY,
    "A name there that the users' file": (_ACCESS, "test_a_user_who_may_only_read_has_to_be_a_user"),
    "A filter of a REST extension": (_ACCESS, "test_a_filter_that_fails_lets_nobody_pass_and_its_error_is_told"),
    "Answers of errors have": (
        "tests/unit/rest/test_scenarios_creation.py",
        "test_the_workers_own_files_are_shown_by_their_settings",
    ),
    "Who may read sees": _NO_SECRET,
    "Passwords are in no log": _NO_SECRET,
    "A name is enough": (_HIDDEN, "test_a_secret_by_its_name_is_in_no_answer_whoever_reads_it"),
    "What was a secret once": (_HIDDEN, "test_what_was_a_secret_once_stays_one"),
    "Task configurations hide": (_HIDDEN, "test_tasks_that_get_a_secret_under_another_name_do_not_show_it"),
    "What `${file:...}` and other": (_HIDDEN, "test_what_a_provider_gave_is_in_no_error_whatever_was_made_of_it"),
    "Settings of Kafka's clients that load": (
        "tests/real/hostile/test_client_settings.py",
        "test_no_request_loads_a_library_into_the_worker",
    ),
    "The override policy decides": (_HOSTILE, "test_what_the_policy_forbids_is_looked_at_by_nothing"),
    "No client is made": (_HOSTILE, "test_no_library_is_loaded_by_validating_or_creating"),
    "Who logs in with Kerberos": (_HOSTILE, "test_who_logs_in_with_kerberos_is_no_command_of_the_shell"),
    "A list of `topics`": (_TEXTS, "test_no_topic_of_a_list_is_a_pattern_of_the_kafka_client"),
    "Files of keys and": (_TEXTS, "test_no_file_of_keys_is_read_without_end"),
    "The address of a database": (_TEXTS, "test_the_address_of_a_database_loads_no_library"),
    "A token endpoint is": (_TEXTS, "test_a_token_endpoint_sends_the_clients_secret_nowhere_else"),
    "Settings of Spark are passed": (
        "tests/unit/pipeline/spark/test_driver_settings.py",
        "test_the_command_line_has_what_starts_the_jvm_and_no_more",
    ),
    "`..`, links, absolute": (_PROVIDERS, "test_no_path_leads_out_of_what_a_provider_may_read"),
    "An allowed path may": (_PROVIDERS, "test_allowed_paths_may_be_links_that_are_exchanged"),
    "Directories given as files": (_PROVIDERS, "test_what_is_no_file_is_an_error_that_says_so"),
    "The environment's variables": (
        _PROVIDERS,
        "test_the_environment_provider_gives_variables_that_its_pattern_takes",
    ),
    "The patterns of configurations": (
        "tests/unit/config/test_java_pattern.py",
        "test_every_place_that_takes_a_pattern_gives_up",
    ),
    "None of them runs in Spark's JVM": (
        "tests/real/pipeline/test_topic_patterns.py",
        "test_a_pattern_that_would_hold_the_jvm_is_answered_at_once",
    ),
    "What the expressions of `Sql` search for": (
        _FENCE,
        "test_the_record_that_runs_over_its_time_is_found_and_the_others_go_on",
    ),
    "They are fields, constants, operators": (
        "tests/unit/hostile/test_sql_fence.py",
        "test_what_leads_out_of_one_record_or_grows_without_bound_is_refused",
    ),
    "A function that a release of Spark adds": (
        _FENCE,
        "test_every_function_of_the_installed_spark_is_allowed_or_refused_by_name",
    ),
    "They are the same on Spark Connect": (
        "tests/real/pipeline/test_spark_connect.py",
        "test_the_fence_of_sql_holds_on_the_server",
    ),
    "A preview runs them in a process": (
        _FENCE,
        "test_a_preview_that_takes_all_memory_leaves_the_worker_and_its_session_alone",
    ),
    "The session takes no file": (_FENCE, "test_a_file_is_no_table_in_the_session"),
    "The patterns of JSON Schemas": (
        "tests/unit/converters/registry/test_json_schema_converter.py",
        "test_a_pattern_of_a_schema_ends_and_so_does_the_check_of_its_values",
    ),
    "Kafka's clients and the clients": (
        "tests/unit/kafka/test_host_names.py",
        "test_a_broker_needs_a_certificate_of_its_name_and_of_a_known_authority",
    ),
    "An https listener with": (_ACCESS, "test_clients_need_a_certificate_when_that_is_required"),
    "Spark's ports are": (_SECRETS, "test_sparks_ports_are_on_this_machine_alone_and_answer_nobody_else"),
    "The offsets file, the file": (_SECRETS, "test_files_are_readable_by_the_workers_user_alone"),
    "Temporary files and": (_SECRETS, "test_files_are_readable_by_the_workers_user_alone"),
    "The directory of a development broker": (
        "tests/unit/broker/test_process.py",
        "test_the_directory_of_a_node_is_its_owners_alone",
    ),
    "Run it as the": (
        "tests/unit/deploy/test_systemd_unit.py",
        "test_the_worker_may_write_its_own_directories_alone_and_java_may_compile",
    ),
    "`connector.client.config.override.policy` says": _POLICIES,
    "A change that a web page": (_REQUESTS, "test_a_page_of_another_site_changes_nothing"),
    "Checking a configuration takes": (_GROWTH, "test_a_check_takes_time_in_step_with_the_configuration"),
    "A pattern that has more": (
        "tests/unit/config/test_java_pattern.py",
        "test_a_pattern_that_would_take_minutes_to_compile_is_refused_in_time",
    ),
    "The bodies of all requests": (_REQUESTS, "test_bodies_of_all_requests_under_way_count_together"),
    "A body that comes in very many": (_REQUESTS, "test_many_tiny_chunks_are_refused_and_keep_nobody_waiting"),
    "Users are asked for": (_REQUESTS, "test_an_unsigned_body_is_not_read"),
    "A number that one member": (_REQUESTS, "test_looking_at_the_headers_uses_no_number_up"),
    "When a question": (_GROWTH, "test_the_work_for_a_question_ends_with_its_answer"),
    "The name of a connector has": (_REQUESTS, "test_a_name_is_as_long_as_a_path_has_room_for"),
    "No request is an error": (
        "tests/unit/hostile/test_fuzz.py",
        "test_no_request_is_an_error_of_the_worker_or_leaves_anything_behind",
    ),
    "Reading imports nothing": (_PLUGINS, "test_a_reader_has_nothing_imported"),
    "Creating, validating and previewing": (_PLUGINS, "test_no_setting_of_a_connector_imports_it"),
    "A setting of a connector that names": (_PLUGINS, "test_a_setting_that_names_a_class_imports_it_neither"),
    "Code of a plugin that exits": (_PLUGINS, "test_what_exits_is_an_error_of_its_class"),
    "Spark's Python workers are reached": (
        "tests/unit/hostile/test_scratch.py",
        "test_python_workers_listen_where_nobody_else_reaches",
    ),
}
#: Advice, which nothing can hold.
ADVICE: Final = (
    "Give each group of connectors",
    "`allowed.paths` and `allowlist.pattern` limit",
)


def test_each_claim_is_in_the_list() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    claims = re.findall(r"^- (.*)$", page, re.MULTILINE)
    assert [claim for claim in claims if not claim.startswith((*CLAIMS, *ADVICE))] == []
    assert [begin for begin in (*CLAIMS, *ADVICE) if not any(claim.startswith(begin) for claim in claims)] == []


@pytest.mark.parametrize(("file", "name"), sorted(set(CLAIMS.values())))
def test_the_test_of_a_claim_is_there(file: str, name: str) -> None:
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    assert name in {node.name for node in body if isinstance(node, ast.FunctionDef)}
