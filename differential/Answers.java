import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * What Kafka Connect's own classes make of the cases of differential/cases.py.
 *
 * Arguments: the file of cases (one JSON object a line). Prints one JSON object for each: "records", one of "record"
 * (null: filtered) and "error" each, for sinks the "messages" that were read; or only "unusable", where the chain
 * cannot be configured.
 */
@SuppressWarnings({"unchecked", "rawtypes"})
public final class Answers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.withExactBigDecimals(true);
    private static final String TRANSFORMS = "org.apache.kafka.connect.transforms.";

    private static final class Link {
        private Transformation transform;
        private Predicate predicate;
        private boolean negate;

        private ConnectRecord apply(ConnectRecord record) {
            return predicate == null || predicate.test(record) != negate ? transform.apply(record) : record;
        }
    }

    private final JsonConverter keys = new JsonConverter();
    private final JsonConverter values = new JsonConverter();
    private final SimpleHeaderConverter headers = new SimpleHeaderConverter();
    private final List<Link> chain = new ArrayList<>();
    private final boolean sink;

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            JsonNode one = JSON.readTree(line);
            Answers answers;
            try {
                answers = new Answers(one);
            } catch (RuntimeException error) {
                System.out.println(NODES.objectNode().put("unusable", error.toString()));
                continue;
            }
            System.out.println(answers.to(one.get("records")));
        }
    }

    private Answers(JsonNode one) throws Exception {
        sink = one.get("direction").asText().equals("sink");
        Map<String, String> settings = Map.of("schemas.enable", one.get("schemas").asText());
        keys.configure(settings, true);
        values.configure(settings, false);
        headers.configure(Map.of("converter.type", "header"));
        for (JsonNode given : one.get("chain")) {
            Link link = new Link();
            link.transform = (Transformation) made(TRANSFORMS, given);
            link.transform.configure(settings(given));
            if (given.has("predicate")) {
                link.predicate = (Predicate) made(TRANSFORMS + "predicates.", given.get("predicate"));
                link.predicate.configure(settings(given.get("predicate")));
                link.negate = given.get("negate").asBoolean();
            }
            chain.add(link);
        }
    }

    private static Object made(String where, JsonNode given) throws Exception {
        return Class.forName(where + given.get("class").asText()).getDeclaredConstructor().newInstance();
    }

    private static Map<String, String> settings(JsonNode given) {
        Map<String, String> found = new HashMap<>();
        given.get("config").fields().forEachRemaining(one -> found.put(one.getKey(), one.getValue().asText()));
        return found;
    }

    // ------------------------------------------------------------------ running
    private ObjectNode to(JsonNode records) {
        ObjectNode answer = NODES.objectNode();
        ArrayNode messages = sink ? answer.putArray("messages") : null;
        ArrayNode outcomes = answer.putArray("records");
        for (JsonNode given : records) {
            ConnectRecord record = record(given);
            ObjectNode message = null;
            if (sink) {
                message = message(given, record);
                messages.add(message);
            }
            ObjectNode outcome = outcomes.addObject();
            try {
                ConnectRecord passed = through(sink ? read((SinkRecord) record, message) : record);
                outcome.set("record", passed == null ? null : sink ? told(passed) : written(passed));
            } catch (Exception error) {
                ObjectNode told = outcome.putObject("error");
                told.put("class", error.getClass().getSimpleName());
                told.put("message", error.getMessage());
            }
        }
        return answer;
    }

    private ConnectRecord through(ConnectRecord record) {
        for (Link link : chain) {
            record = link.apply(record);
            if (record == null) {
                return null;
            }
        }
        return record;
    }

    /** What a source would have written of the record, or the text that stands in its place. */
    private ObjectNode message(JsonNode given, ConnectRecord record) {
        ObjectNode message = NODES.objectNode();
        message.put("key", base64(keys.fromConnectData(record.topic(), record.keySchema(), record.key())));
        byte[] value = given.has("message")
            ? given.get("message").asText().getBytes(StandardCharsets.UTF_8)
            : values.fromConnectData(record.topic(), record.valueSchema(), record.value());
        message.put("value", base64(value));
        message.set("headers", writtenHeaders(record));
        return message;
    }

    private SinkRecord read(SinkRecord record, JsonNode message) {
        SchemaAndValue key = keys.toConnectData(record.topic(), bytes(message.get("key")));
        SchemaAndValue value = values.toConnectData(record.topic(), bytes(message.get("value")));
        ConnectHeaders found = new ConnectHeaders();
        for (JsonNode one : message.get("headers")) {
            String name = one.get(0).asText();
            found.add(name, headers.toConnectHeader(record.topic(), name, bytes(one.get(1))));
        }
        return new SinkRecord(record.topic(), record.kafkaPartition(), key.schema(), key.value(), value.schema(),
            value.value(), record.kafkaOffset(), record.timestamp(), TimestampType.CREATE_TIME, found);
    }

    private ObjectNode written(ConnectRecord record) {
        ObjectNode told = NODES.objectNode();
        told.put("topic", record.topic());
        told.put("key", base64(keys.fromConnectData(record.topic(), record.keySchema(), record.key())));
        told.put("value", base64(values.fromConnectData(record.topic(), record.valueSchema(), record.value())));
        told.set("headers", writtenHeaders(record));
        return told;
    }

    private ArrayNode writtenHeaders(ConnectRecord record) {
        ArrayNode told = NODES.arrayNode();
        for (Header one : (Iterable<Header>) record.headers()) {
            byte[] data = headers.fromConnectHeader(record.topic(), one.key(), one.schema(), one.value());
            told.addArray().add(one.key()).add(base64(data));
        }
        return told;
    }

    private static String base64(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    private static byte[] bytes(JsonNode data) {
        return data.isNull() ? null : Base64.getDecoder().decode(data.asText());
    }

    // ------------------------------------------------------------------ records out of the notation of vectors
    private static ConnectRecord record(JsonNode given) {
        Schema keySchema = Notation.schema(given.get("keySchema"));
        Schema valueSchema = Notation.schema(given.get("valueSchema"));
        Object key = Notation.value(keySchema, given.get("key"));
        Object value = Notation.value(valueSchema, given.get("value"));
        ConnectHeaders found = new ConnectHeaders();
        for (JsonNode one : given.get("headers")) {
            Schema schema = Notation.schema(one.get("schema"));
            found.add(one.get("key").asText(), new SchemaAndValue(schema, Notation.value(schema, one.get("value"))));
        }
        String topic = given.get("topic").asText();
        int partition = given.get("partition").asInt();
        Long timestamp = given.get("timestamp").isNull() ? null : given.get("timestamp").asLong();
        if (given.has("offset")) {
            return new SinkRecord(topic, partition, keySchema, key, valueSchema, value, given.get("offset").asLong(),
                timestamp, TimestampType.CREATE_TIME, found);
        }
        return new SourceRecord(Map.of(), Map.of(), topic, partition, keySchema, key, valueSchema, value, timestamp,
            found);
    }

    // ------------------------------------------------------------------ and back
    /** A sink's record: its parts as JsonConverter writes them with their schemas, which tells all but classes. */
    private ObjectNode told(ConnectRecord record) {
        ObjectNode told = NODES.objectNode();
        told.put("topic", record.topic());
        told.put("partition", record.kafkaPartition());
        told.put("timestamp", record.timestamp());
        JsonConverter whole = new JsonConverter();
        whole.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        told.put("key", part(whole, record.keySchema(), record.key()));
        told.put("value", part(whole, record.valueSchema(), record.value()));
        ArrayNode all = told.putArray("headers");
        for (Header one : (Iterable<Header>) record.headers()) {
            all.addArray().add(one.key()).add(part(whole, one.schema(), one.value()));
        }
        return told;
    }

    private static String part(JsonConverter whole, Schema schema, Object value) {
        try {
            return base64(whole.fromConnectData("told", schema, value));
        } catch (RuntimeException error) {
            return "not to be written: " + error.getClass().getSimpleName();
        }
    }
}
