"""``SchemaProjector``: projects a value of one schema onto a compatible one, for example after a schema has evolved.

Owning thread: none; pure functions.
"""

from __future__ import annotations

from typing import Any, Final, cast

from penstock.data.schema import Schema, Type
from penstock.data.structs import Struct
from penstock.data.text import nearest_float32, to_java_text
from penstock.errors import SchemaProjectorException

#: From narrow to wide; a value may be projected to any later type.
_PROMOTIONS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)


class SchemaProjector:
    """Projects values between schemas.

    Versions are not compared. Source: org.apache.kafka.connect.data.SchemaProjector.
    """

    @staticmethod
    def project(source: Schema, value: object, target: Schema) -> object:
        """Returns the value converted to the target schema.

        Numbers are widened; fields of structs are matched by name; missing fields get the target's default.

        Raises:
            SchemaProjectorException: The types, names or parameters are incompatible, a required field is missing, or
                null may come where the target has neither null nor a default.

        >>> from penstock.data import FLOAT64_SCHEMA, INT32_SCHEMA
        >>> SchemaProjector.project(INT32_SCHEMA, 5, FLOAT64_SCHEMA)
        5.0
        """
        _check_compatible(source, target)
        if source.optional and not target.optional:
            if target.default is None:
                raise SchemaProjectorException(
                    "Writer schema is optional, however, target schema does not provide a default value."
                )
            if value is None:
                return target.default
        return None if value is None else _project_present(source, value, target)


def _check_compatible(source: Schema, target: Schema) -> None:
    if source.type is not target.type and not _promotable(source.type, target.type):
        raise SchemaProjectorException(
            f"Schema type mismatch. source type: {source.type.name} and target type: {target.type.name}"
        )
    if source.name != target.name:
        raise SchemaProjectorException(
            "Schema name mismatch. "
            f"source name: {to_java_text(source.name)} and target name: {to_java_text(target.name)}"
        )
    if source.parameters != target.parameters:
        raise SchemaProjectorException(
            "Schema parameters not equal. "
            f"source parameters: {_parameters(source)} and target parameters: {_parameters(target)}"
        )


def _promotable(source: Type, target: Type) -> bool:
    return source in _PROMOTIONS and target in _PROMOTIONS and _PROMOTIONS.index(source) <= _PROMOTIONS.index(target)


def _parameters(schema: Schema) -> str:
    return to_java_text(None if schema.parameters is None else dict(schema.parameters))


def _project_present(source: Schema, value: Any, target: Schema) -> object:
    match target.type:
        case Type.STRUCT:
            return _project_struct(source, cast("Struct", value), target)
        case Type.ARRAY:
            return [_project_part(source.value_schema, item, target.value_schema) for item in value]
        case Type.MAP:
            return {
                _project_part(source.key_schema, key, target.key_schema): _project_part(
                    source.value_schema, item, target.value_schema
                )
                for key, item in value.items()
            }
        case Type.FLOAT32 if type(value) is int:
            return nearest_float32(value)
        case Type.FLOAT64 if type(value) is int:
            return float(value)
        case _:
            return cast("object", value)


def _project_part(source: Schema | None, value: object, target: Schema | None) -> Any:
    if source is None or target is None:
        raise SchemaProjectorException("Elements without a schema cannot be projected")
    return SchemaProjector.project(source, value, target)


def _project_struct(source: Schema, value: Struct, target: Schema) -> Struct:
    result = Struct(target)
    for field in target.fields:
        origin = source.field(field.name)
        if origin is not None:
            try:
                result.put(field, SchemaProjector.project(origin.schema, value.get(field.name), field.schema))
            except SchemaProjectorException as problem:
                raise SchemaProjectorException(f"Error projecting {field.name}") from problem
        elif field.schema.default is not None:
            result.put(field, field.schema.default)
        elif not field.schema.optional:
            raise SchemaProjectorException(f"Required field `{field.name}` is missing from source schema: {source}")
    return result
