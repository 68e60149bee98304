package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Tests of a consumer whose commits meet faults. KCORE_CONTROL and KCORE_BOOTSTRAP name the running broker. */
class CommitTest {
    private static final String CONTROL = System.getenv("KCORE_CONTROL");
    private static final String BOOTSTRAP = System.getenv("KCORE_BOOTSTRAP");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    /** Sends a request to the control server and returns the body of its response. */
    private static String control(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(CONTROL + path))
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        assertTrue(response.statusCode() < 300, response.body());
        return response.body();
    }

    @AfterEach
    void clearFaults() throws Exception {
        control("DELETE", "/faults", "");
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        return new KafkaConsumer<>(
                Map.of("bootstrap.servers", BOOTSTRAP, "group.id", group, "client.id", "worker",
                        "auto.offset.reset", "earliest", "enable.auto.commit", false),
                new StringDeserializer(), new StringDeserializer());
    }

    private static void produce(String topic) throws Exception {
        control("POST", "/topics", "{\"name\": \"" + topic + "\"}");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", BOOTSTRAP), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "work")).get();
        }
    }

    private static void pollOne(KafkaConsumer<String, String> consumer) {
        for (int i = 0; i < 300; i++) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                assertEquals(1, records.count());
                return;
            }
        }
        throw new AssertionError("no record arrived");
    }

    @Test
    void aCommitIsRepeatedWhenTheCoordinatorLoads() throws Exception {
        produce("junit-retry");
        try (KafkaConsumer<String, String> consumer = consumer("junit-retry")) {
            consumer.subscribe(List.of("junit-retry"));
            pollOne(consumer);
            control("POST", "/faults", "{\"action\": \"fail\", \"api\": \"OffsetCommit\", \"group\": \"junit-retry\","
                    + " \"error\": \"COORDINATOR_LOAD_IN_PROGRESS\", \"times\": 2}");
            consumer.commitSync();
        }
        String faults = control("GET", "/faults", "");
        assertTrue(faults.contains("\"applied\": 2"), faults);
        control("POST", "/groups/junit-retry/assert-committed",
                "{\"offsets\": [{\"topic\": \"junit-retry\", \"partition\": 0, \"offset\": 1}]}");
    }

    @Test
    void anExpiredMemberCannotCommit() throws Exception {
        produce("junit-expired");
        try (KafkaConsumer<String, String> consumer = consumer("junit-expired")) {
            consumer.subscribe(List.of("junit-expired"));
            pollOne(consumer);
            control("POST", "/groups/junit-expired/expire", "{\"client_id\": \"worker\"}");
            assertThrows(CommitFailedException.class, consumer::commitSync);
        }
        String history = control("GET", "/groups/junit-expired/history", "");
        assertTrue(history.contains("\"kind\": \"fenced\""), history);
    }
}
