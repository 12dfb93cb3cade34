"""The JSON Schema of a type as `encode` sends it, which differs from pydantic's serialisation for a few types."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

__all__ = ["SentSchema"]


class SentSchema(GenerateJsonSchema):
    """Pass this class as `schema_generator`. Bytes are `{"base64", "size"}` outside models. A Decimal may have an
    exponent: pydantic's serialiser writes it, although pydantic's pattern does not allow it.
    """

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        sent: dict[str, Any] = {
            "type": "object",
            "properties": {"base64": {"type": "string", "contentEncoding": "base64"}, "size": {"type": "integer"}},
            "required": ["base64", "size"],
        }
        return {"anyOf": [sent, {"type": "string"}]}  # a model writes its bytes as text

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {"type": "string"} if self.mode == "serialization" else super().decimal_schema(schema)
