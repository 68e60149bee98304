import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's share consumer in all its modes; prints a line for each step that went as expected. */
public final class ShareClient {
    private static final Duration SHORT = Duration.ofMillis(500);
    private static final long LIMIT_MS = 60_000;
    private static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        implicit();
        explicit();
        renewal();
        recordLimit();
        sharing();
    }

    private static void implicit() throws Exception {
        prepare("implicit", 3, 300);
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit", Map.of())) {
            List<String> values = new ArrayList<>();
            long until = System.currentTimeMillis() + LIMIT_MS;
            while (values.size() < 300 && System.currentTimeMillis() < until) {
                for (ConsumerRecord<String, String> record : consumer.poll(SHORT)) {
                    values.add(record.value());
                }
            }
            consumer.commitSync();
            check(values.size() == 300 && values.stream().distinct().count() == 300, values.size() + " values");
        }
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit", Map.of())) {
            long until = System.currentTimeMillis() + 3_000;
            while (System.currentTimeMillis() < until) {
                check(consumer.poll(SHORT).isEmpty(), "an acknowledged record came again");
            }
        }
        System.out.println("ok: each record once, and never again");
    }

    private static void explicit() throws Exception {
        prepare("explicit", 1, 10);
        Map<String, Object> mode = Map.of("share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer = consumer("explicit", mode)) {
            Map<Long, Short> deliveries = new TreeMap<>();
            long until = System.currentTimeMillis() + LIMIT_MS;
            int redelivered = 0;
            while ((deliveries.size() < 10 || redelivered < 3) && System.currentTimeMillis() < until) {
                for (ConsumerRecord<String, String> record : consumer.poll(SHORT)) {
                    short count = record.deliveryCount().orElse((short) 0);
                    deliveries.put(record.offset(), count);
                    boolean release = record.offset() % 3 == 1 && count == 1;
                    boolean reject = record.offset() % 3 == 2;
                    consumer.acknowledge(record, release ? AcknowledgeType.RELEASE : reject ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    redelivered += count == 2 ? 1 : 0;
                }
                for (Object error : consumer.commitSync().values()) {
                    check(error.toString().equals("Optional.empty"), "commit: " + error);
                }
            }
            Map<Long, Short> expected = new HashMap<>();
            for (long offset = 0; offset < 10; offset++) {
                expected.put(offset, (short) (offset % 3 == 1 ? 2 : 1));
            }
            check(deliveries.equals(expected), deliveries.toString());
        }
        System.out.println("ok: released records come again, rejected ones do not");
    }

    private static void renewal() throws Exception {
        prepare("renewal", 1, 1);
        Map<String, Object> mode = Map.of("share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer = consumer("renewal", mode)) {
            ConsumerRecord<String, String> record = null;
            long until = System.currentTimeMillis() + LIMIT_MS;
            while (record == null && System.currentTimeMillis() < until) {
                for (ConsumerRecord<String, String> each : consumer.poll(SHORT)) {
                    record = each;
                }
            }
            check(record != null, "no record");
            for (int i = 0; i < 2; i++) {
                consumer.acknowledge(record, AcknowledgeType.RENEW);
                for (Object error : consumer.commitSync().values()) {
                    check(error.toString().equals("Optional.empty"), "renewal: " + error);
                }
                record = consumer.poll(Duration.ofSeconds(5)).iterator().next();
                check(record.deliveryCount().orElse((short) 0) == 1, "renewed, and delivered again");
            }
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            for (Object error : consumer.commitSync().values()) {
                check(error.toString().equals("Optional.empty"), "accept: " + error);
            }
        }
        System.out.println("ok: a lock is renewed");
    }

    private static void recordLimit() throws Exception {
        prepare("limit", 1, 10);
        Map<String, Object> mode = Map.of("share.acquire.mode", "record_limit", "max.poll.records", 3);
        try (KafkaShareConsumer<String, String> consumer = consumer("limit", mode)) {
            int count = 0;
            long until = System.currentTimeMillis() + LIMIT_MS;
            while (count < 10 && System.currentTimeMillis() < until) {
                ConsumerRecords<String, String> records = consumer.poll(SHORT);
                check(records.count() <= 3, records.count() + " records at once");
                count += records.count();
            }
            check(count == 10, count + " records");
        }
        System.out.println("ok: the record limit is exact");
    }

    private static void sharing() throws Exception {
        prepare("sharing", 1, 0);
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        Map<String, Integer> byMember = new ConcurrentHashMap<>();
        AtomicBoolean done = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            String name = "member-" + i;
            Thread thread = new Thread(() -> {
                try (KafkaShareConsumer<String, String> consumer = consumer("sharing", Map.of("max.poll.records", 5))) {
                    while (!done.get()) {
                        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                            seen.merge(record.value(), 1, Integer::sum);
                            byMember.merge(name, 1, Integer::sum);
                        }
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        long until = System.currentTimeMillis() + LIMIT_MS;
        int sent = 0;
        try (KafkaProducer<String, String> producer = producer()) {
            // On a slow machine, the second member may join after 2,000 records.
            while ((sent < 2000 || byMember.size() < 2) && System.currentTimeMillis() < until) {
                for (int i = 0; i < 20; i++) {
                    producer.send(new ProducerRecord<>("sharing", "value-" + sent++));
                }
                producer.flush();
            }
        }
        while (seen.size() < sent && System.currentTimeMillis() < until) {
            Thread.sleep(50);
        }
        done.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        check(seen.size() == sent, seen.size() + " of " + sent);
        check(seen.values().stream().allMatch(count -> count == 1), "a record came twice");
        check(byMember.size() > 1, "one member had everything");
        System.out.println("ok: members share a partition");
    }

    private static void prepare(String name, int partitions, int records) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
            List<AlterConfigOp> settings = List.of(
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(group, settings)).all().get();
        }
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(name, i % partitions, null, "value-" + i));
            }
        }
    }

    private static KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    private static KafkaShareConsumer<String, String> consumer(String name, Map<String, Object> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", name);
        settings.putAll(more);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(name));
        return consumer;
    }

    private static void check(boolean condition, String message) {
        if (!condition) {
            throw new IllegalStateException(message);
        }
    }
}
