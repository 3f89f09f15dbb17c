package org.apache.kafka.connect.runtime.distributed;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.util.ConnectorTaskId;

/**
 * Answers, a line each, what Kafka Connect's own leader decides in the rounds of a scenario, and which bytes its members
 * send. The package is that of the classes, some of whose methods are for it alone.
 *
 * A unit is the name of a connector, or a list of name and number for a task.
 */
public class Assignments {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static long now;

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            JsonNode given = JSON.readTree(line);
            System.out.println(given.has("rounds") ? rounds(given) : bytes(given));
        }
    }

    private static ObjectNode rounds(JsonNode scenario) {
        Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
                (proxy, method, given) -> {
                    if (!method.getName().equals("milliseconds"))
                        throw new UnsupportedOperationException(method.getName());
                    return now;
                });
        IncrementalCooperativeAssignor assignor =
                new IncrementalCooperativeAssignor(new LogContext(), time, scenario.get("max_delay_ms").asInt());
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode plans = answer.putArray("plans");
        for (JsonNode round : scenario.get("rounds")) {
            now = round.get("now_ms").asLong();
            Map<String, WorkerCoordinator.ConnectorsAndTasks> members = new TreeMap<>();
            round.get("running").fields().forEachRemaining(
                    one -> members.put(one.getKey(), units(one.getValue())));
            IncrementalCooperativeAssignor.ClusterAssignment made = assignor.performTaskAssignment(
                    snapshot(round.get("configured")), round.get("last_completed").asInt(),
                    round.get("generation").asInt(), members);
            ObjectNode plan = plans.addObject();
            plan.put("delay_ms", assignor.delay);
            tell(plan.putObject("assigned"), made.newlyAssignedConnectors(), made.newlyAssignedTasks());
            tell(plan.putObject("revoked"), made.newlyRevokedConnectors(), made.newlyRevokedTasks());
        }
        return answer;
    }

    private static WorkerCoordinator.ConnectorsAndTasks units(JsonNode given) {
        return new WorkerCoordinator.ConnectorsAndTasks.Builder().with(connectors(given), tasks(given)).build();
    }

    private static List<String> connectors(JsonNode units) {
        List<String> found = new ArrayList<>();
        units.forEach(unit -> {
            if (unit.isTextual())
                found.add(unit.asText());
        });
        return found;
    }

    private static List<ConnectorTaskId> tasks(JsonNode units) {
        List<ConnectorTaskId> found = new ArrayList<>();
        units.forEach(unit -> {
            if (unit.isArray())
                found.add(new ConnectorTaskId(unit.get(0).asText(), unit.get(1).asInt()));
        });
        return found;
    }

    private static ClusterConfigState snapshot(JsonNode configured) {
        Map<String, Integer> counts = new HashMap<>();
        Map<String, Map<String, String>> configs = new HashMap<>();
        Map<String, TargetState> targets = new HashMap<>();
        Map<ConnectorTaskId, Map<String, String>> taskConfigs = new HashMap<>();
        for (String connector : connectors(configured)) {
            configs.put(connector, Map.of());
            counts.put(connector, 0);
            targets.put(connector, TargetState.STARTED);
        }
        for (ConnectorTaskId task : tasks(configured)) {
            counts.merge(task.connector(), 1, Integer::sum);
            taskConfigs.put(task, Map.of());
        }
        return new ClusterConfigState(1, null, counts, configs, targets, taskConfigs, Map.of(), Map.of(), Map.of(),
                Set.of(), Set.of());
    }

    private static void tell(ObjectNode answer, Map<String, Collection<String>> connectors,
                             Map<String, Collection<ConnectorTaskId>> tasks) {
        Set<String> members = new TreeSet<>(connectors.keySet());
        members.addAll(tasks.keySet());
        for (String member : members) {
            Collection<String> some = connectors.getOrDefault(member, List.of());
            Collection<ConnectorTaskId> others = tasks.getOrDefault(member, List.of());
            if (some.isEmpty() && others.isEmpty())
                continue;
            ArrayNode units = answer.putArray(member);
            some.forEach(units::add);
            others.forEach(task -> units.addArray().add(task.connector()).add(task.task()));
        }
    }

    private static ObjectNode bytes(JsonNode given) {
        short version = (short) given.get("version").asInt();
        String url = given.get("url").asText();
        long offset = given.get("config_offset").asLong();
        ExtendedAssignment assignment = new ExtendedAssignment(version, (short) given.get("error").asInt(),
                given.get("leader").asText(), url, offset, connectors(given.get("assigned")), tasks(given.get("assigned")),
                connectors(given.get("revoked")), tasks(given.get("revoked")), given.get("delay_ms").asInt());
        ExtendedWorkerState state = new ExtendedWorkerState(url, offset, given.get("idle").asBoolean() ? null : assignment);
        ObjectNode answer = JSON.createObjectNode();
        boolean sessioned = version == 2;
        answer.put("assignment", hex(version == 0
                ? ConnectProtocol.serializeAssignment(assignment)
                : IncrementalCooperativeConnectProtocol.serializeAssignment(assignment, sessioned)));
        answer.put("metadata", hex(version == 0
                ? ConnectProtocol.serializeMetadata(state)
                : IncrementalCooperativeConnectProtocol.serializeMetadata(state, sessioned)));
        return answer;
    }

    private static String hex(ByteBuffer buffer) {
        byte[] all = new byte[buffer.remaining()];
        buffer.get(all);
        StringBuilder text = new StringBuilder();
        for (byte one : all)
            text.append(String.format("%02x", one));
        return text.toString();
    }
}
