import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Accepts, rejects and releases records at random until its input ends: BOOTSTRAP GROUP TOPIC SEED. */
public final class ShareWorker {
    private static final int LIMIT = 4;

    public static void main(String[] args) throws Exception {
        Random random = new Random(Long.parseLong(args[3]));
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) {
                error.printStackTrace();
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("client.id", "java");
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("retry.backoff.max.ms", 200);
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            while (!ended.get()) {
                try {
                    boolean any = false;
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        any = true;
                        consumer.acknowledge(record, choose(random, record.deliveryCount().orElse((short) 1)));
                    }
                    if (any && random.nextBoolean()) {
                        consumer.commitSync(Duration.ofSeconds(5));
                    }
                } catch (KafkaException error) {
                    System.out.println(error);
                }
            }
        }
    }

    private static AcknowledgeType choose(Random random, short count) {
        double chosen = random.nextDouble();
        if (chosen < 0.15 && count < LIMIT) {
            return AcknowledgeType.RELEASE;
        }
        return chosen < 0.3 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }
}
