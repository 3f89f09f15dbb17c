"""Definitions of configurations, their parsing and checking, and the providers of values kept elsewhere.

A connector or plugin author builds a `ConfigDef` from `ConfigType`, `Importance`, `Width` and validators.
"""

from penstock.config.definition import ConfigDef, ConfigKey, Recommender
from penstock.config.kinds import NO_DEFAULT, ConfigType, Importance, Width
from penstock.config.parse import ClassResolver, convert_to_string, find_class, import_class, parse_type
from penstock.config.properties import load_properties, parse_properties
from penstock.config.providers import (
    ConfigData,
    ConfigProvider,
    ConfigTransformer,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
)
from penstock.config.validators import (
    AnyNonDuplicate,
    CaseInsensitiveValidString,
    CompositeValidator,
    LambdaValidator,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Range,
    SubclassOf,
    Validator,
    ValidList,
    ValidString,
)
from penstock.config.values import Config, ConfigValue, Password

__all__ = [
    "NO_DEFAULT",
    "AnyNonDuplicate",
    "CaseInsensitiveValidString",
    "ClassResolver",
    "CompositeValidator",
    "Config",
    "ConfigData",
    "ConfigDef",
    "ConfigKey",
    "ConfigProvider",
    "ConfigTransformer",
    "ConfigType",
    "ConfigValue",
    "DirectoryConfigProvider",
    "EnvVarConfigProvider",
    "FileConfigProvider",
    "Importance",
    "LambdaValidator",
    "ListSize",
    "NonEmptyString",
    "NonEmptyStringWithoutControlChars",
    "NonNull",
    "Password",
    "Range",
    "Recommender",
    "SubclassOf",
    "ValidList",
    "ValidString",
    "Validator",
    "Width",
    "convert_to_string",
    "find_class",
    "import_class",
    "load_properties",
    "parse_properties",
    "parse_type",
]
