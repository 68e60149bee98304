import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;

/** Prints every setting of a Kafka broker as one line of JSON; tools/generate_kafka_settings.py reads it. */
public class Dump {
    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys());
        Map<String, ConfigDef.ConfigKey> quotas = QuotaConfig.brokerQuotaConfigs().configKeys();
        keys.putAll(quotas);
        // Kafka describes settings in the order of this map; the given values are the required ones.
        Map<String, String> required = Map.of("process.roles", "broker", "node.id", "1",
            "controller.listener.names", "C", "controller.quorum.voters", "1@h:1");
        List<String> described = List.copyOf(
            new AbstractConfig(AbstractKafkaConfig.CONFIG_DEF, required, false) { }.nonInternalValues().keySet());
        for (ConfigDef.ConfigKey key : keys.values()) {
            boolean quota = quotas.containsKey(key.name);
            Object value = key.hasDefault() && !quota ? key.defaultValue : null;
            String mode = quota ? "cluster-wide" : modes.getOrDefault(key.name, "read-only");
            System.out.println("{\"name\":" + quote(key.name) + ",\"type\":" + quote(key.type)
                + ",\"default\":" + quote(value == null ? null : ConfigDef.convertToString(value, key.type))
                + ",\"valid\":" + quote(key.validator) + ",\"mode\":" + quote(mode)
                + ",\"position\":" + described.indexOf(key.name)
                + ",\"listed\":" + !(quota || key.internalConfig) + "}");
        }
    }

    private static String quote(Object value) {
        if (value == null) {
            return "null";
        }
        return "\"" + value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }
}
