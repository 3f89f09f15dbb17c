import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Schemas and values of Connect in the JSON of the recorded vectors (conformance.vectors.codec), read and written.
 *
 * Names of schemas are interned, as those of constants in a connector are: some of Confluent's code compares them by
 * identity.
 */
final class Notation {
    private static final JsonNodeFactory NODES = JsonNodeFactory.withExactBigDecimals(true);
    private static final long EXACT = 1L << 53;

    private Notation() {
    }

    // ------------------------------------------------------------------ read
    static Schema schema(JsonNode given) {
        if (given == null || given.isNull()) {
            return null;
        }
        Schema.Type type = Schema.Type.valueOf(given.get("type").asText().toUpperCase(Locale.ROOT));
        String name = given.has("name") ? given.get("name").asText().intern() : null;
        Integer version = given.has("version") ? given.get("version").asInt() : null;
        String doc = given.has("doc") ? given.get("doc").asText() : null;
        Map<String, String> parameters = null;
        if (given.has("parameters")) {
            parameters = new LinkedHashMap<>();
            for (Map.Entry<String, JsonNode> one : given.get("parameters").properties()) {
                parameters.put(one.getKey(), one.getValue().asText());
            }
        }
        List<Field> fields = null;
        if (type == Schema.Type.STRUCT) {
            fields = new ArrayList<>();
            for (JsonNode one : given.get("fields")) {
                fields.add(new Field(one.get("name").asText(), fields.size(), schema(one.get("schema"))));
            }
        }
        Schema keys = schema(given.get("keys"));
        Schema inside = schema(type == Schema.Type.ARRAY ? given.get("items") : given.get("values"));
        boolean optional = given.path("optional").asBoolean(false);
        Schema bare = new ConnectSchema(type, optional, null, name, version, doc, parameters, fields, keys, inside);
        if (!given.hasNonNull("default")) {
            return bare;
        }
        Object fallback = value(bare, given.get("default"));
        return new ConnectSchema(type, optional, fallback, name, version, doc, parameters, fields, keys, inside);
    }

    static Object value(Schema schema, JsonNode given) {
        if (given == null || given.isNull()) {
            return null;
        }
        Schema inside = schema != null && (schema.type() == Schema.Type.ARRAY || schema.type() == Schema.Type.MAP)
            ? schema.valueSchema() : null;
        if (given.isObject() && !given.isEmpty() && given.fieldNames().next().startsWith("$")) {
            return tagged(schema, inside, given.fieldNames().next(), given);
        }
        if (given.isTextual()) {
            return given.asText();
        }
        if (given.isBoolean()) {
            return given.asBoolean();
        }
        if (given.isNumber()) {
            return number(schema, given);
        }
        if (given.isArray()) {
            List<Object> items = new ArrayList<>();
            given.forEach(one -> items.add(value(inside, one)));
            return items;
        }
        if (schema != null && schema.type() == Schema.Type.STRUCT) {
            Struct struct = new Struct(schema);
            for (Field field : schema.fields()) {
                struct.put(field, value(field.schema(), given.get(field.name())));
            }
            return struct;
        }
        Map<Object, Object> found = new HashMap<>();
        given.fields().forEachRemaining(one -> found.put(one.getKey(), value(inside, one.getValue())));
        return found;
    }

    private static Object number(Schema schema, JsonNode given) {
        if (schema == null) {
            return given.isIntegralNumber() ? (Object) given.asLong() : (Object) given.asDouble();
        }
        switch (schema.type()) {
            case INT8:
                return (byte) given.asInt();
            case INT16:
                return (short) given.asInt();
            case INT32:
                return given.asInt();
            case INT64:
                return given.asLong();
            case FLOAT32:
                return (float) given.asDouble();
            default:
                return given.asDouble();
        }
    }

    private static Object tagged(Schema schema, Schema inside, String tag, JsonNode given) {
        JsonNode content = given.get(tag);
        switch (tag) {
            case "$int64":
                return Long.parseLong(content.asText());
            case "$float32":
                return Float.parseFloat(content.asText());
            case "$float64":
                return Double.parseDouble(content.asText());
            case "$bytes":
                return Base64.getDecoder().decode(content.asText());
            case "$decimal":
                return new BigDecimal(content.asText()).setScale(given.get("$scale").asInt());
            case "$date":
            case "$time":
            case "$timestamp":
                return new java.util.Date(content.asLong());
            case "$map":
                Map<Object, Object> found = new HashMap<>();
                content.forEach(one -> found.put(value(schema.keySchema(), one.get(0)), value(inside, one.get(1))));
                return found;
            default:
                throw new IllegalArgumentException("unknown tag " + tag);
        }
    }

    // ------------------------------------------------------------------ written
    static JsonNode told(Schema schema) {
        if (schema == null) {
            return NODES.nullNode();
        }
        ObjectNode told = NODES.objectNode().put("type", schema.type().name().toLowerCase(Locale.ROOT));
        if (schema.isOptional()) {
            told.put("optional", true);
        }
        if (schema.name() != null) {
            told.put("name", schema.name());
        }
        if (schema.version() != null) {
            told.put("version", schema.version());
        }
        if (schema.doc() != null) {
            told.put("doc", schema.doc());
        }
        if (schema.parameters() != null && !schema.parameters().isEmpty()) {
            ObjectNode parameters = told.putObject("parameters");
            schema.parameters().forEach(parameters::put);
        }
        if (schema.defaultValue() != null) {
            told.set("default", told(schema, schema.defaultValue()));
        }
        if (schema.type() == Schema.Type.ARRAY) {
            told.set("items", told(schema.valueSchema()));
        } else if (schema.type() == Schema.Type.MAP) {
            told.set("keys", told(schema.keySchema()));
            told.set("values", told(schema.valueSchema()));
        } else if (schema.type() == Schema.Type.STRUCT) {
            ArrayNode fields = told.putArray("fields");
            for (Field field : schema.fields()) {
                fields.addObject().put("name", field.name()).set("schema", told(field.schema()));
            }
        }
        return told;
    }

    static JsonNode told(Schema schema, Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (value instanceof Struct) {
            Struct struct = (Struct) value;
            ObjectNode fields = NODES.objectNode();
            for (Field field : struct.schema().fields()) {
                fields.set(field.name(), told(field.schema(), struct.getWithoutDefault(field.name())));
            }
            return fields;
        }
        Schema inside = schema != null && (schema.type() == Schema.Type.ARRAY || schema.type() == Schema.Type.MAP)
            ? schema.valueSchema() : null;
        if (value instanceof Collection) {
            ArrayNode items = NODES.arrayNode();
            ((Collection<?>) value).forEach(one -> items.add(told(inside, one)));
            return items;
        }
        if (value instanceof Map) {
            Schema keys = schema == null || schema.type() != Schema.Type.MAP ? null : schema.keySchema();
            ArrayNode entries = NODES.arrayNode();
            ((Map<?, ?>) value).forEach((key, one) -> entries.addArray().add(told(keys, key)).add(told(inside, one)));
            return NODES.objectNode().set("$map", entries);
        }
        return leaf(schema, value);
    }

    private static JsonNode leaf(Schema schema, Object value) {
        ObjectNode tagged = NODES.objectNode();
        if (value instanceof byte[] || value instanceof ByteBuffer) {
            ByteBuffer buffer = value instanceof byte[] ? ByteBuffer.wrap((byte[]) value)
                : ((ByteBuffer) value).duplicate();
            byte[] data = new byte[buffer.remaining()];
            buffer.get(data);
            return tagged.put("$bytes", Base64.getEncoder().encodeToString(data));
        }
        if (value instanceof BigDecimal) {
            BigDecimal number = (BigDecimal) value;
            return tagged.put("$decimal", number.toPlainString()).put("$scale", number.scale());
        }
        if (value instanceof java.util.Date) {
            String name = schema == null || schema.name() == null ? "Timestamp"
                : schema.name().substring(schema.name().lastIndexOf('.') + 1);
            return tagged.put("$" + name.toLowerCase(Locale.ROOT), ((java.util.Date) value).getTime());
        }
        if (value instanceof Boolean) {
            return NODES.booleanNode((Boolean) value);
        }
        if (value instanceof Float) {
            float number = (Float) value;
            return Float.isFinite(number) ? tagged.put("$float32", Double.parseDouble(Float.toString(number)))
                : tagged.put("$float32", Float.toString(number));
        }
        if (value instanceof Double) {
            double number = (Double) value;
            return Double.isFinite(number) ? NODES.numberNode(number) : tagged.put("$float64", Double.toString(number));
        }
        if (value instanceof Number) {
            long number = ((Number) value).longValue();
            return Math.abs(number) <= EXACT && number != Long.MIN_VALUE ? NODES.numberNode(number)
                : tagged.put("$int64", Long.toString(number));
        }
        return NODES.textNode(value.toString());
    }
}
