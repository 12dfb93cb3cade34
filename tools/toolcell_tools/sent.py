"""JSON Schema of a type as `encode` sends it, where that is not what pydantic's own serialiser would write."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

__all__ = ["SentSchema"]


class SentSchema(GenerateJsonSchema):
    """Bytes are `{"base64", "size"}` outside of models; a Decimal may have an exponent, which pydantic's own pattern
    does not allow though its serialiser writes it. Pass it as `schema_generator`.
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
