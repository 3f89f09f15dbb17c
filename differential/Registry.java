import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.ExtensionRegistry;
import com.squareup.wire.schema.internal.parser.ProtoFileElement;
import io.confluent.connect.avro.AvroConverter;
import io.confluent.connect.protobuf.ProtobufConverter;
import io.confluent.kafka.schemaregistry.ParsedSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchemaProvider;
import io.confluent.kafka.schemaregistry.client.MockSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchemaProvider;
import io.confluent.protobuf.MetaProto;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.Converter;

/**
 * What Confluent's converters make of the cases of differential/registry.py.
 *
 * Arguments: the file of cases (one JSON object a line): "format", "config", and one or more of
 *
 * - "schema" and "value", as the recorded vectors write them: they are written, and read again;
 * - "theirs": a schema text and the payload behind its id (base64), which are read;
 * - "latest": the text of the subject's latest schema.
 *
 * Prints one JSON object for each: "written" (the text of the schema and the payload), "read", "theirs" (the text as
 * the registry prints it, and what was read), each of them perhaps with "error", the messages of its causes.
 */
public final class Registry {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "t";
    private static final int HEAD = 5;

    private final JsonNode one;
    private final boolean avro;

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            System.out.println(new Registry(JSON.readTree(line)).answer());
        }
    }

    private Registry(JsonNode one) {
        this.one = one;
        avro = one.get("format").asText().equals("AVRO");
    }

    private ObjectNode answer() {
        ObjectNode answer = JSON.createObjectNode();
        if (one.has("schema")) {
            written(answer);
        }
        if (one.has("theirs")) {
            theirs(answer.putObject("theirs"));
        }
        return answer;
    }

    private void written(ObjectNode answer) {
        SchemaRegistryClient registry = registry();
        ObjectNode written = answer.putObject("written");
        byte[] data;
        try {
            if (one.has("latest")) {
                registry.register(TOPIC + "-value", parsed(one.get("latest").asText()));
            }
            Schema schema = Notation.schema(one.get("schema"));
            data = converter(registry).fromConnectData(TOPIC, schema, Notation.value(schema, one.get("value")));
            if (data == null) {
                written.putNull("payload");
                return;
            }
            written.put("text", registry.getSchemaById(id(data)).canonicalString());
            written.put("payload", payload(data));
            written.put("subject", String.join(",", registry.getAllSubjects()));
        } catch (Throwable error) {
            written.put("error", causes(error));
            return;
        }
        read(answer.putObject("read"), registry, data);
    }

    private void theirs(ObjectNode answer) {
        SchemaRegistryClient registry = registry();
        byte[] data;
        try {
            ParsedSchema schema = parsed(one.get("theirs").get("text").asText());
            answer.put("text", schema.canonicalString());
            int id = registry.register(TOPIC + "-value", schema);
            byte[] payload = Base64.getDecoder().decode(one.get("theirs").get("payload").asText());
            data = new byte[HEAD + payload.length];
            for (int place = 1; place < HEAD; place++) {
                data[place] = (byte) (id >>> 8 * (HEAD - 1 - place));
            }
            System.arraycopy(payload, 0, data, HEAD, payload.length);
        } catch (Throwable error) {
            answer.put("error", causes(error));
            return;
        }
        read(answer, registry, data);
    }

    private void read(ObjectNode answer, SchemaRegistryClient registry, byte[] data) {
        try {
            SchemaAndValue found = converter(registry).toConnectData(TOPIC, data);
            answer.set("schema", Notation.told(found.schema()));
            answer.set("value", Notation.told(found.schema(), found.value()));
        } catch (Throwable error) {
            answer.put("error", causes(error));
        }
    }

    // ------------------------------------------------------------------ Confluent's
    private static SchemaRegistryClient registry() {
        return new MockSchemaRegistryClient(List.of(new AvroSchemaProvider(), new ProtobufSchemaProvider()));
    }

    private ParsedSchema parsed(String text) throws Exception {
        return avro ? new AvroSchema(text)
            : text.matches("[A-Za-z0-9+/]+={0,2}") ? descriptor(Base64.getDecoder().decode(text))
            : new ProtobufSchema(text);
    }

    /** A serialized file, as newer registries read it: this one forgets the options of fields. */
    private static ProtobufSchema descriptor(byte[] file) throws Exception {
        ExtensionRegistry known = ExtensionRegistry.newInstance();
        MetaProto.registerAllExtensions(known);
        Method convert = ProtobufSchema.class.getDeclaredMethod("toProtoFile", FileDescriptorProto.class);
        convert.setAccessible(true);
        Object made = convert.invoke(null, FileDescriptorProto.parseFrom(file, known));
        return new ProtobufSchema((ProtoFileElement) made, List.of(), Map.of());
    }

    private Converter converter(SchemaRegistryClient registry) {
        Map<String, Object> config = new HashMap<>();
        config.put("schema.registry.url", "http://mock");
        one.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        Converter made = avro ? new AvroConverter(registry) : new ProtobufConverter(registry);
        made.configure(config, one.path("key").asBoolean(false));
        return made;
    }

    private static int id(byte[] data) {
        int id = 0;
        for (int place = 1; place < HEAD; place++) {
            id = id << 8 | data[place] & 0xff;
        }
        return id;
    }

    private static String payload(byte[] data) {
        return Base64.getEncoder().encodeToString(java.util.Arrays.copyOfRange(data, HEAD, data.length));
    }

    private static String causes(Throwable error) {
        StringBuilder told = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            told.append(told.length() == 0 ? "" : " <- ").append(cause.getClass().getSimpleName()).append(": ")
                .append(cause.getMessage());
        }
        return told.toString();
    }
}
