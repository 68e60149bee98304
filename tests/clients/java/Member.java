import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group in a process of its own: what member.py is for Python's libraries, for Java's.
 *
 * <p>Arguments: name=value, as Member in members.py gives them. It says what happens to it as JSON lines, and leaves its
 * group when its standard input ends.
 */
public final class Member {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private static volatile boolean stopped = false;
    private static String owned = "";

    private Member() {}

    private static synchronized void say(String event, String rest) {
        System.out.println("{\"event\": \"" + event + "\"" + rest + "}");
        System.out.flush();
    }

    private static String json(Collection<TopicPartition> parts) {
        return parts.stream()
            .map(part -> "[\"" + part.topic() + "\", " + part.partition() + "]")
            .sorted()
            .collect(Collectors.joining(", ", ", \"partitions\": [", "]"));
    }

    private static Properties settings(Map<String, String> options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("group.id", options.get("group"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("fetch.max.wait.ms", "100");
        String[] strategy = options.get("strategy").split(":");
        if (strategy[0].equals("consumer")) {
            settings.put("group.protocol", "consumer");
            if (strategy.length > 1) {
                settings.put("group.remote.assignor", strategy[1]);
            }
        } else {
            settings.put("group.protocol", "classic");
            settings.put("partition.assignment.strategy", ASSIGNORS.get(strategy[0]));
            settings.put("session.timeout.ms", options.get("session_timeout_ms"));
            settings.put("heartbeat.interval.ms", options.get("heartbeat_interval_ms"));
        }
        if (options.containsKey("instance_id")) {
            settings.put("group.instance.id", options.get("instance_id"));
        }
        return settings;
    }

    private static void subscribe(KafkaConsumer<String, String> consumer, List<String> topics) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> parts) {}

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> parts) {
                if (!parts.isEmpty()) {
                    say("revoked", json(parts));
                }
            }
        };
        if (topics.get(0).startsWith("^")) {  // for the server to resolve
            consumer.subscribe(new SubscriptionPattern(topics.get(0)), listener);
        } else {
            consumer.subscribe(topics, listener);
        }
    }

    private static void step(KafkaConsumer<String, String> consumer) {
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        String owns = json(consumer.assignment());
        if (!owns.equals(owned)) {
            owned = owns;
            say("owns", owns);
        }
        for (ConsumerRecord<String, String> record : records) {
            say("record", ", \"topic\": \"" + record.topic() + "\", \"partition\": " + record.partition()
                + ", \"offset\": " + record.offset() + ", \"value\": \"" + record.value() + "\"");
        }
        if (!records.isEmpty()) {
            try {
                consumer.commitSync();
                say("committed", "");
            } catch (KafkaException error) {
                say("commit failed", ", \"reason\": \"" + error.getClass().getSimpleName() + "\"");
            }
        }
    }

    public static void main(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        List<String> topics = new ArrayList<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            if (pair[0].equals("topic")) {
                topics.add(pair[1]);
            } else {
                options.put(pair[0], pair[1]);
            }
        }
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ended) {
                // as good as the end
            }
            stopped = true;
        });
        input.setDaemon(true);
        input.start();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings(options), new StringDeserializer(), new StringDeserializer())) {
            subscribe(consumer, topics);
            while (!stopped) {
                step(consumer);
            }
        }
        say("left", "");
    }
}
