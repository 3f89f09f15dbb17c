package bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** Makes records of the messages in a file, JSON with schemas, again and again. */
public class ShapeSource extends SourceConnector {
    private Map<String, String> props;

    @Override public String version() { return "1"; }
    @Override public void start(Map<String, String> given) { props = given; }
    @Override public void stop() { }
    @Override public Class<? extends Task> taskClass() { return Maker.class; }
    @Override public List<Map<String, String>> taskConfigs(int tasks) { return List.of(props); }
    @Override public ConfigDef config() {
        return new ConfigDef()
            .define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The messages.")
            .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "Where records go.");
    }

    /** One task. */
    public static class Maker extends SourceTask {
        private static final int BATCH = 2000;
        private final List<SchemaAndValue> keys = new ArrayList<>();
        private final List<SchemaAndValue> values = new ArrayList<>();
        private String topic;
        private long given;

        @Override public String version() { return "1"; }
        @Override public void stop() { }

        @Override public void start(Map<String, String> props) {
            topic = props.get("topic");
            JsonConverter converter = new JsonConverter();
            converter.configure(Map.of(), false);
            try {
                for (String line : Files.readAllLines(Path.of(props.get("file")))) {
                    String[] sides = line.split("\t");
                    byte[] key = sides[0].isEmpty() ? null : sides[0].getBytes("UTF-8");
                    keys.add(converter.toConnectData(topic, key));
                    values.add(converter.toConnectData(topic, sides[1].getBytes("UTF-8")));
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override public List<SourceRecord> poll() {
            List<SourceRecord> made = new ArrayList<>(BATCH);
            for (int number = 0; number < BATCH; number++) {
                int row = (int) (given++ % values.size());
                SchemaAndValue key = keys.get(row);
                SchemaAndValue value = values.get(row);
                made.add(new SourceRecord(
                    Collections.singletonMap("part", 0L), Collections.singletonMap("given", given), topic, null,
                    key.schema(), key.value(), value.schema(), anew((Struct) value.value())));
            }
            return made;
        }

        private static Struct anew(Struct value) {
            Struct made = new Struct(value.schema());
            for (Field field : value.schema().fields()) {
                Object one = value.get(field);
                made.put(field, one instanceof Struct ? anew((Struct) one) : one);
            }
            return made;
        }
    }
}
