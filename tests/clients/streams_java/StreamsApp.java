import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

/** A Kafka Streams application that obeys commands on standard input; every line of output reports one event. */
public final class StreamsApp {
    public static void main(String[] arguments) throws Exception {
        String prefix = arguments[0];
        String kind = arguments[1];
        Properties settings = new Properties();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("commit.interval.ms", 100);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("consumer.auto.offset.reset", "earliest");
        for (String argument : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            String[] parts = argument.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (kind) {
            case "count" -> count(builder, prefix);
            case "join" -> join(builder, prefix);
            default -> throw new IllegalArgumentException(kind);
        }
        Topology topology = builder.build(settings);
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            say("error " + error.getClass().getSimpleName() + " " + error.getMessage());
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        String command;
        while ((command = commands.readLine()) != null && !command.equals("stop")) {
            answer(streams, command);
        }
        boolean closed = streams.close(new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(20)).leaveGroup(true));
        say("closed " + closed);
    }

    /** Counts words; the grouping needs a repartition topic, the count a changelog topic. */
    private static void count(StreamsBuilder builder, String prefix) {
        builder.<String, String>stream(prefix + "-text")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(prefix + "-counts");
    }

    /** Joins a repartitioned stream with a table, whose topics are co-partitioned. */
    private static void join(StreamsBuilder builder, String prefix) {
        KTable<String, String> prices = builder.table(prefix + "-prices", Materialized.as(Stores.inMemoryKeyValueStore("prices")));
        KStream<String, String> orders = builder.stream(prefix + "-orders");
        orders.selectKey((key, value) -> value)
            .repartition(Repartitioned.as("by-product"))
            .join(prices, (product, price) -> product + "=" + price)
            .to(prefix + "-bills");
    }

    private static void answer(KafkaStreams streams, String command) {
        String[] words = command.split(" ");
        switch (words[0]) {
            case "tasks" -> {
                TreeMap<String, String> found = new TreeMap<>();
                streams.metadataForLocalThreads().forEach(thread -> {
                    thread.activeTasks().forEach(task -> found.put(task.taskId().toString(), "active"));
                    thread.standbyTasks().forEach(task -> found.put(task.taskId().toString(), "standby"));
                });
                say("tasks " + found);
            }
            case "hosts" -> {
                TreeMap<String, String> found = new TreeMap<>();
                for (StreamsMetadata host : streams.metadataForAllStreamsClients()) {
                    found.put(host.host() + ":" + host.port(), host.topicPartitions().size() + "+" + host.standbyTopicPartitions().size());
                }
                say("hosts " + found);
            }
            case "query" -> {
                TreeMap<String, Long> found = new TreeMap<>();
                try (var rows = streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.<String, Long>keyValueStore())).all()) {
                    while (rows.hasNext()) {
                        KeyValue<String, Long> row = rows.next();
                        found.put(row.key, row.value);
                    }
                }
                say("query " + found);
            }
            default -> say("unknown " + command);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
