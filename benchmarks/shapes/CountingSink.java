package bench;

import java.io.RandomAccessFile;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** Counts the records that its tasks are given, each in a file of its own. */
public class CountingSink extends SinkConnector {
    private Map<String, String> props;

    @Override public String version() { return "1"; }
    @Override public void start(Map<String, String> given) { props = given; }
    @Override public void stop() { }
    @Override public Class<? extends Task> taskClass() { return Counter.class; }
    @Override public ConfigDef config() {
        return new ConfigDef().define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "Where counts are.");
    }

    @Override public List<Map<String, String>> taskConfigs(int tasks) {
        List<Map<String, String>> made = new ArrayList<>();
        for (int number = 0; number < tasks; number++) {
            Map<String, String> one = new HashMap<>(props);
            one.put("file", props.get("file") + "." + number);
            made.add(one);
        }
        return made;
    }

    /** One task. */
    public static class Counter extends SinkTask {
        private RandomAccessFile file;
        private long count;

        @Override public String version() { return "1"; }

        @Override public void start(Map<String, String> props) {
            try {
                file = new RandomAccessFile(props.get("file"), "rw");
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        @Override public void put(Collection<SinkRecord> records) {
            count += records.size();
            try {
                file.seek(0);
                file.writeLong(count);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        @Override public void stop() {
            try {
                file.close();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }
}
