"""Definitions of configurations, their parsing and validation, and providers of external values.

Start from:

- ``AbstractConfig``, ``setting``, ``AbsentSetting`` (``abstract_config``): the settings of a class as typed fields.
- ``ConfigDef`` (``definition``): the definition made of these fields; or built by hand from ``ConfigType``,
  ``Importance`` and ``Width`` (``parse``) and from ``validators``.
- ``parse_type`` (``parse``): the text of one setting as a value, by Java's rules.
- ``ConfigProvider``, ``ConfigTransformer`` (``providers``): ``${provider:path:key}`` and the sources of these values.
- ``compile_java`` (``java_pattern``): regular expressions that users wrote, in linear time or with a limit.
  ``pattern_pieces`` and ``char_classes`` are its parts.
- ``refusal`` (``importable``): which modules a class name of a configuration may import.
- ``nearest`` (``suggestions``): the name that was probably meant.
- ``Prefixed`` (``properties``): the settings below a prefix.
- ``load_properties`` (``properties``): Java's properties files.

Penstock's own settings are in ``penstock.settings``; ``penstock.validation`` checks whole connectors. Except for the
patterns, it needs the standard library only.
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
