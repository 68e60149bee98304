import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's transactional producer against a server: commits, aborts, offsets, fencing, and those who look at it.
 *
 * <p>Arguments: HOST:PORT and a name that nobody uses. Each step that held is a line "ok: ...".
 */
public final class TransactionsClient {
    private final String bootstrap;
    private final String name;
    private final TopicPartition place;

    private TransactionsClient(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
        this.place = new TopicPartition(name, 0);
    }

    public static void main(String[] arguments) throws Exception {
        new TransactionsClient(arguments[0], arguments[1]).run();
    }

    private void run() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
            KafkaProducer<String, String> producer = producer();
            producer.initTransactions();
            List<String> wanted = new ArrayList<>();
            for (int turn = 0; turn < 6; turn++) {
                producer.beginTransaction();
                for (int i = 0; i < 3; i++) {
                    producer.send(new ProducerRecord<>(name, 0, null, turn + "-" + i));
                }
                if (turn % 2 == 0) {
                    producer.commitTransaction();
                    wanted.addAll(List.of(turn + "-0", turn + "-1", turn + "-2"));
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            step("commits are seen, aborts are not", wanted.equals(read(wanted.size())));
            offsets(producer);
            describe(admin, producer);
            KafkaProducer<String, String> successor = producer();
            successor.initTransactions();
            step("the old instance is fenced", isFenced(producer));
            successor.beginTransaction();
            successor.send(new ProducerRecord<>(name, 0, null, "last"));
            successor.commitTransaction();
            wanted.add("last");
            step("the new one goes on", wanted.equals(read(wanted.size())));
            successor.close();
            producer.close(Duration.ZERO);
        }
    }

    private void offsets(KafkaProducer<String, String> producer) {
        ConsumerGroupMetadata group = new ConsumerGroupMetadata(name + "-group");
        for (boolean commit : new boolean[] {false, true}) {
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(commit ? 7 : 5, "note")), group);
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            OffsetAndMetadata committed = consumer.committed(java.util.Set.of(place)).get(place);
            step("offsets are committed with it", committed.equals(new OffsetAndMetadata(7, "note")));
        }
    }

    private void describe(Admin admin, KafkaProducer<String, String> producer) throws Exception {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(name, 0, null, "open"));
        producer.flush();
        TransactionDescription open = admin.describeTransactions(List.of(name)).description(name).get();
        step(
            "described while it is open",
            open.state() == TransactionState.ONGOING && open.topicPartitions().equals(java.util.Set.of(place)));
        step(
            "listed",
            admin.listTransactions().all().get().stream().anyMatch(
                listing -> listing.transactionalId().equals(name) && listing.producerId() == open.producerId()));
        step(
            "its producer is described",
            admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().stream().anyMatch(
                state -> state.producerId() == open.producerId() && state.currentTransactionStartOffset().isPresent()));
    }

    private boolean isFenced(KafkaProducer<String, String> producer) {
        try {
            producer.send(new ProducerRecord<>(name, 0, null, "zombie"));
            producer.commitTransaction();
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            return true;
        } catch (KafkaException failed) {
            return failed.getCause() instanceof ProducerFencedException
                || failed.getCause() instanceof InvalidProducerEpochException;
        }
        return false;
    }

    private List<String> read(int count) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long deadline = System.nanoTime() + 20_000_000_000L;
            while (values.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                values.add(record.value());
            }
        }
        return values;
    }

    private KafkaProducer<String, String> producer() {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", name));
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer() {
        Map<String, Object> settings = new HashMap<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", name + "-group",
                "isolation.level", "read_committed",
                "enable.auto.commit", "false"));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void step(String what, boolean held) {
        System.out.println((held ? "ok: " : "FAILED: ") + what);
    }
}
