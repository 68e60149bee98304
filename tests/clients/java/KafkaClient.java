import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's own clients against a server: produces, shares a group of the classic protocol, commits, administrates.
 *
 * <p>Arguments: HOST:PORT, a topic and a group that nobody uses, the number of nodes, and settings of all clients as
 * name=value. Each step that held is a line "ok: ...".
 */
public final class KafkaClient {
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 30;
    private static final Duration DEADLINE = Duration.ofSeconds(100);  // of one step, on a busy machine
    /** The records have timestamps of 2020: a shorter retention would delete them at the server's next check. */
    private static final String RETENTION_MS = "1000000000000";
    private static final String LONGER_RETENTION_MS = "2000000000000";

    private final String topic;
    private final String group;
    private final int nodes;
    private final Map<String, Object> common = new HashMap<>();
    private final Admin admin;

    private KafkaClient(String... arguments) {
        this.topic = arguments[1];
        this.group = arguments[2];
        this.nodes = Integer.parseInt(arguments[3]);
        common.put("bootstrap.servers", arguments[0]);
        for (int index = 4; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            common.put(setting[0], setting[1]);
        }
        this.admin = Admin.create(common);
    }

    public static void main(String[] arguments) throws Exception {
        KafkaClient client = new KafkaClient(arguments);
        try {
            client.createTopic();
            client.produce();
            client.shareGroup();
            client.administrateGroup();
            client.administrateTopic();
        } finally {
            client.admin.close();
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
        System.out.println("ok: " + what);
    }

    private static void until(Callable<Boolean> condition, String what) throws Exception {
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not in time: " + what);
            }
        }
        System.out.println("ok: " + what);
    }

    private KafkaConsumer<String, String> consumer() {
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("group.id", group);
        settings.put("group.protocol", "classic");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", "60000");
        settings.put("heartbeat.interval.ms", "200");
        settings.put("fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Set<TopicPartition> parts() {
        Set<TopicPartition> parts = new HashSet<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            parts.add(new TopicPartition(topic, partition));
        }
        return parts;
    }

    private void createTopic() throws Exception {
        NewTopic wanted = new NewTopic(topic, PARTITIONS, (short) 1).configs(Map.of("retention.ms", RETENTION_MS));
        admin.createTopics(List.of(wanted)).all().get();
        int known = admin.describeCluster().nodes().get().size();
        until(() -> known == nodes && partitions() == PARTITIONS, "topic created");
    }

    /** Returns the number of the topic's partitions: 0 at a node of a cluster that does not know the topic yet. */
    private int partitions() throws Exception {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw error;
        }
    }

    private String retention(ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
    }

    /** Idempotent, as is Java's default; compressed; with headers; the last one of each partition is a tombstone. */
    private void produce() throws Exception {
        Map<String, Object> settings = new HashMap<>(common);
        settings.putAll(Map.of("compression.type", "zstd", "linger.ms", 5, "acks", "all"));
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < RECORDS; number++) {
                String value = number < RECORDS - PARTITIONS ? "value-" + number : null;
                sent.add(producer.send(new ProducerRecord<>(
                    topic, number % PARTITIONS, 1_600_000_000_000L + number, "key-" + number, value,
                    List.of(new RecordHeader("number", Integer.toString(number).getBytes(StandardCharsets.UTF_8))))));
            }
            for (java.util.concurrent.Future<RecordMetadata> each : sent) {
                offsets.add(each.get(DEADLINE.toSeconds(), TimeUnit.SECONDS).offset());
            }
        }
        boolean inOrder = true;
        for (int number = 0; number < RECORDS; number++) {
            inOrder &= offsets.get(number) == number / PARTITIONS;
        }
        check(inOrder, "records produced in order");
    }

    private static void poll(Collection<ConsumerRecord<String, String>> into, KafkaConsumer<String, String> consumer) {
        consumer.poll(Duration.ofMillis(50)).forEach(into::add);
    }

    /** Returns true once the consumer has read all records of its partitions. */
    private static boolean hasRead(KafkaConsumer<String, String> consumer) {
        return consumer.assignment().stream().allMatch(part -> consumer.position(part) == RECORDS / PARTITIONS);
    }

    /** Commits, unless the rebalance goes on: a member may own its partitions before it knows that it is over. */
    private static boolean commits(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
            return true;
        } catch (RebalanceInProgressException error) {
            return false;
        }
    }

    private void shareGroup() throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (KafkaConsumer<String, String> first = consumer()) {
            first.subscribe(List.of(topic));
            try (KafkaConsumer<String, String> second = consumer()) {
                second.subscribe(List.of(topic));
                until(() -> {
                    poll(records, first);
                    poll(records, second);
                    Set<TopicPartition> owned = new HashSet<>(first.assignment());
                    owned.addAll(second.assignment());
                    return owned.equals(parts()) && !second.assignment().isEmpty()
                        && first.assignment().size() + second.assignment().size() == PARTITIONS
                        && hasRead(first) && hasRead(second) && commits(first) && commits(second);
                }, "two members share the partitions");
            }
            Set<String> keys = new TreeSet<>();
            long tombstones = 0;
            boolean headers = true;
            for (ConsumerRecord<String, String> record : records) {
                keys.add(record.key());
                tombstones += record.value() == null ? 1 : 0;
                byte[] number = record.headers().lastHeader("number").value();
                headers &= record.key().equals("key-" + new String(number, StandardCharsets.UTF_8));
            }
            check(keys.size() == RECORDS && tombstones >= PARTITIONS && headers, "every record arrived whole");
            until(() -> {
                poll(records, first);
                return first.assignment().equals(parts());
            }, "the one who stays takes over");
            Map<TopicPartition, OffsetAndMetadata> committed = first.committed(parts());
            boolean all = committed.values().stream().allMatch(each -> each != null && each.offset() == 10);
            check(all && committed.size() == PARTITIONS, "offsets committed");
            TopicPartition part = new TopicPartition(topic, 0);
            long found = first.offsetsForTimes(Map.of(part, 1_600_000_000_010L)).get(part).offset();
            first.seek(part, found);
            records.clear();
            until(() -> {
                poll(records, first);
                return !records.isEmpty() && records.get(0).key().equals("key-12");
            }, "seek by time");
            ConsumerGroupDescription described =
                admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            check(described.members().size() == 1 && described.partitionAssignor().equals("cooperative-sticky"),
                "group described");
            check(refused(() -> admin.deleteConsumerGroups(List.of(group)).all().get(), GroupNotEmptyException.class),
                "a group with members is not deleted");
        }
    }

    private static boolean refused(Callable<?> call, Class<? extends Exception> why) throws Exception {
        try {
            call.call();
            return false;
        } catch (ExecutionException error) {
            return why.isInstance(error.getCause());
        }
    }

    private void administrateGroup() throws Exception {
        TopicPartition part = new TopicPartition(topic, 1);
        admin.alterConsumerGroupOffsets(group, Map.of(part, new OffsetAndMetadata(4, "by hand"))).all().get();
        Map<TopicPartition, OffsetAndMetadata> listed =
            new HashMap<>(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
        check(listed.get(part).offset() == 4 && listed.get(part).metadata().equals("by hand"), "offsets altered");
        admin.deleteConsumerGroupOffsets(group, Set.of(part)).all().get();
        int left = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        boolean gone = admin.listGroups().all().get().stream().noneMatch(each -> each.groupId().equals(group));
        check(left == PARTITIONS - 1 && gone, "offsets and group deleted");
    }

    private void administrateTopic() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", LONGER_RETENTION_MS), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        TopicPartition part = new TopicPartition(topic, 0);
        admin.deleteRecords(Map.of(part, RecordsToDelete.beforeOffset(7))).all().get();
        long start = admin.listOffsets(Map.of(part, OffsetSpec.earliest())).partitionResult(part).get().offset();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        until(() -> start == 7 && partitions() == 5 && retention(resource).equals(LONGER_RETENTION_MS),
            "topic administrated");
        admin.deleteTopics(List.of(topic)).all().get();
        until(() -> !admin.listTopics().names().get().contains(topic), "topic deleted");
    }
}
