import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.rest.entities.CreateConnectorRequest;

/**
 * What Kafka Connect makes of bytes that should be JSON (differential/json_bytes.py).
 *
 * Arguments: the file of cases (one JSON object a line: "of", which is "key", "value", or "body" for the body of POST
 * /connectors, "schemas", "data" in base64). Prints one JSON object for each: "error", the class of the exception, or
 * "json" (as JsonConverter writes it with its schema) and "text" (String.valueOf), both in base64; of a body its "name"
 * and "config".
 */
public final class JsonBytes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private JsonBytes() {
    }

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            JsonNode one = JSON.readTree(line);
            byte[] data = Base64.getDecoder().decode(one.get("data").asText());
            ObjectNode told = NODES.objectNode();
            try {
                if (one.get("of").asText().equals("body")) {
                    CreateConnectorRequest read = JSON.readValue(data, CreateConnectorRequest.class);
                    told.put("name", base64(read.name()));
                    told.put("config", base64(read.config() == null ? null : JSON.writeValueAsString(read.config())));
                } else {
                    read(one, data, told);
                }
            } catch (Exception error) {
                told.removeAll();
                told.put("error", error.getClass().getSimpleName());
                told.put("message", String.valueOf(error.getMessage()).lines().findFirst().orElse(""));
            }
            System.out.println(told);
        }
    }

    private static void read(JsonNode one, byte[] data, ObjectNode told) {
        boolean isKey = one.get("of").asText().equals("key");
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", one.get("schemas").asText()), isKey);
        SchemaAndValue read = converter.toConnectData("t", data);
        JsonConverter whole = new JsonConverter();
        whole.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), isKey);
        told.put("text", base64(String.valueOf(read.value())));
        byte[] json;
        try {
            json = whole.fromConnectData("t", read.schema(), read.value());
        } catch (RuntimeException error) {
            // A name with half of a surrogate pair can be read, and not be written.
            return;
        }
        told.put("json", json == null ? null : Base64.getEncoder().encodeToString(json));
    }

    private static String base64(String text) {
        return text == null ? null : Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
