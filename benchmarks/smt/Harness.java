import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Runs Kafka Connect's own transforms and converters in a tight loop on one thread.
 *
 * Arguments: the file of cases (one JSON object a line), milliseconds to warm up, milliseconds to measure. Prints one
 * JSON object for each case and batch size.
 */
public final class Harness {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static Object sink;

    private interface Batch {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        long warm = Long.parseLong(args[1]) * 1_000_000L;
        long measured = Long.parseLong(args[2]) * 1_000_000L;
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            JsonNode one = JSON.readTree(line);
            for (JsonNode size : one.get("sizes")) {
                Batch batch = batchOf(one, size.asInt());
                loop(batch, warm);
                double perBatch = loop(batch, measured);
                double rate = size.asInt() / perBatch * 1e9;
                System.out.println(JSON.writeValueAsString(Map.of(
                    "case", one.get("case").asInt(), "size", size.asInt(), "rate", rate)));
            }
        }
    }

    private static double loop(Batch batch, long nanos) throws Exception {
        long start = System.nanoTime();
        long count = 0;
        long now;
        do {
            batch.run();
            count++;
            now = System.nanoTime();
        } while (now - start < nanos);
        return (double) (now - start) / count;
    }

    private static Batch batchOf(JsonNode one, int size) throws Exception {
        List<byte[]> messages = messagesOf(Path.of(one.get("data").asText()), size);
        JsonConverter reader = new JsonConverter();
        reader.configure(Map.of("schemas.enable", one.get("typed").asText()), false);
        List<SchemaAndValue> values = new ArrayList<>();
        for (byte[] message : messages) {
            values.add(reader.toConnectData("t", message));
        }
        String topic = one.get("topic").asText();
        if (one.get("kind").asText().equals("chain")) {
            return chain(one, topic, values);
        }
        Converter converter = made(one.get("links").get(0));
        converter.configure(settings(one.get("links").get(0)), false);
        if (one.get("kind").asText().equals("write")) {
            return () -> {
                for (SchemaAndValue value : values) {
                    sink = converter.fromConnectData(topic, value.schema(), value.value());
                }
            };
        }
        List<byte[]> wire = new ArrayList<>();
        for (SchemaAndValue value : values) {
            wire.add(converter.fromConnectData(topic, value.schema(), value.value()));
        }
        return () -> {
            for (byte[] data : wire) {
                sink = converter.toConnectData(topic, data);
            }
        };
    }

    private static Batch chain(JsonNode one, String topic, List<SchemaAndValue> values) throws Exception {
        List<Transformation<SourceRecord>> steps = new ArrayList<>();
        for (JsonNode link : one.get("links")) {
            Transformation<SourceRecord> step = made(link);
            step.configure(settings(link));
            steps.add(step);
        }
        boolean headers = one.get("headers").asBoolean();
        List<SourceRecord> records = new ArrayList<>();
        for (SchemaAndValue value : values) {
            ConnectHeaders found = new ConnectHeaders();
            if (headers) {
                found.addString("trace", "on");
            }
            records.add(new SourceRecord(Map.of(), Map.of(), topic, null, null, null, value.schema(), value.value(),
                1_700_000_000_000L, found));
        }
        return () -> {
            for (SourceRecord record : records) {
                SourceRecord current = record;
                for (Transformation<SourceRecord> step : steps) {
                    current = step.apply(current);
                    if (current == null) {
                        break;
                    }
                }
                sink = current;
            }
        };
    }

    private static List<byte[]> messagesOf(Path file, int size) throws Exception {
        List<byte[]> found = new ArrayList<>();
        try (var lines = Files.newBufferedReader(file)) {
            String line;
            while (found.size() < size && (line = lines.readLine()) != null) {
                found.add(line.getBytes("UTF-8"));
            }
        }
        return found;
    }

    @SuppressWarnings("unchecked")
    private static <T> T made(JsonNode link) throws Exception {
        return (T) Class.forName(link.get("java").asText()).getDeclaredConstructor().newInstance();
    }

    private static Map<String, String> settings(JsonNode link) {
        Map<String, String> found = new HashMap<>();
        Iterator<Map.Entry<String, JsonNode>> fields = link.get("settings").fields();
        while (fields.hasNext()) {
            Map.Entry<String, JsonNode> field = fields.next();
            found.put(field.getKey(), field.getValue().asText());
        }
        return found;
    }
}
