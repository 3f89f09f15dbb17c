"""Definitions of configurations, their parsing and checking, and the providers of values kept elsewhere.

Start from:

- ``AbstractConfig``, ``setting``, ``AbsentSetting`` (``abstract_config``): the settings of a class as typed fields.
- ``ConfigDef`` (``definition``): what these fields define; or built by hand, of ``ConfigType``, ``Importance`` and
  ``Width`` (``parse``) and of ``validators``.
- ``parse_type`` (``parse``): the text of one setting as a value, by Java's rules.
- ``ConfigProvider``, ``ConfigTransformer`` (``providers``): ``${provider:path:key}`` and where the value comes from.
- ``patterns``: regular expressions that users wrote, in linear time or with a limit.
- ``refusal`` (``importable``): which modules a class name of a configuration may import.
- ``nearest`` (``suggestions``): the name that was probably meant.
- ``Prefixed`` (``prefixes``): the settings below a prefix.
- ``load_properties`` (``properties``): Java's properties files.

Which settings Penstock itself has is in ``penstock.settings``; how a whole connector is checked is in
``penstock.validation``. But for the patterns, the standard library is all it needs.
"""

from penstock.config.abstract_config import AbsentSetting, AbstractConfig, setting
from penstock.config.definition import ConfigDef, ConfigKey, Recommender
from penstock.config.parse import (
    NO_DEFAULT,
    ClassResolver,
    Config,
    ConfigType,
    ConfigValue,
    Importance,
    Password,
    Width,
    convert_to_string,
    find_class,
    import_class,
    parse_type,
)
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

__all__ = [
    "NO_DEFAULT",
    "AbsentSetting",
    "AbstractConfig",
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
    "setting",
]
