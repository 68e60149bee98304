import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberAssignment;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints the groups, committed offsets and transactions that Kafka's admin client reports.
 *
 * <p>Each fact is a line: its kind and its fields, separated by tabs. A missing field is a minus sign, and the members
 * of a list are separated by commas. Argument: HOST:PORT.
 */
public final class AdminState {
    private static final String NONE = "-";

    private AdminState() {
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            List<String> consumers = new ArrayList<>();
            List<String> shares = new ArrayList<>();
            for (GroupListing group : admin.listGroups().all().get()) {
                GroupType type = group.type().orElseThrow();
                print("group", group.groupId(), type.toString().toLowerCase(), group.groupState().orElseThrow());
                (type == GroupType.SHARE ? shares : consumers).add(group.groupId());
            }
            for (ConsumerGroupDescription group : admin.describeConsumerGroups(consumers).all().get().values()) {
                printConsumerGroup(admin, group);
            }
            for (ShareGroupDescription group : admin.describeShareGroups(shares).all().get().values()) {
                printShareGroup(admin, group);
            }
            List<String> ids = new ArrayList<>();
            admin.listTransactions().all().get().forEach(listing -> ids.add(listing.transactionalId()));
            for (Map.Entry<String, TransactionDescription> entry :
                    admin.describeTransactions(ids).all().get().entrySet()) {
                TransactionDescription found = entry.getValue();
                print("transaction", entry.getKey(), found.state(), found.producerId(), found.producerEpoch(),
                    found.transactionTimeoutMs(), found.transactionStartTimeMs().orElse(-1),
                    partitions(found.topicPartitions()));
            }
        }
    }

    private static void printConsumerGroup(Admin admin, ConsumerGroupDescription group) throws Exception {
        if (group.type() != GroupType.CLASSIC) {
            print("epochs", group.groupId(), optional(group.groupEpoch()), optional(group.targetAssignmentEpoch()),
                group.partitionAssignor());
        }
        for (MemberDescription member : group.members()) {
            print("member", group.groupId(), member.consumerId(), optional(member.groupInstanceId()),
                member.clientId(), member.host(), optional(member.memberEpoch()),
                partitions(member.assignment().topicPartitions()),
                member.targetAssignment().map(MemberAssignment::topicPartitions).map(AdminState::partitions)
                    .orElse(NONE));
        }
        Map<TopicPartition, OffsetAndMetadata> offsets =
            admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : offsets.entrySet()) {
            OffsetAndMetadata committed = entry.getValue();
            print("offset", group.groupId(), entry.getKey(), committed.offset(),
                committed.leaderEpoch().orElse(-1), committed.metadata());
        }
    }

    private static void printShareGroup(Admin admin, ShareGroupDescription group) throws Exception {
        print("epochs", group.groupId(), group.groupEpoch(), group.targetAssignmentEpoch(), NONE);
        for (ShareMemberDescription member : group.members()) {
            print("member", group.groupId(), member.consumerId(), NONE, member.clientId(), member.host(),
                member.memberEpoch(), partitions(member.assignment().topicPartitions()), NONE);
        }
        Map<TopicPartition, SharePartitionOffsetInfo> starts = admin
            .listShareGroupOffsets(Map.of(group.groupId(), new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group.groupId()).get();
        for (Map.Entry<TopicPartition, SharePartitionOffsetInfo> entry : starts.entrySet()) {
            if (entry.getValue() != null) {  // null: no member has fetched from the partition yet
                print("share-start", group.groupId(), entry.getKey(), entry.getValue().startOffset(),
                    optional(entry.getValue().leaderEpoch()));
            }
        }
    }

    private static String partitions(Collection<TopicPartition> partitions) {
        TreeSet<String> names = new TreeSet<>();
        partitions.forEach(partition -> names.add(partition.toString()));
        return String.join(",", names);
    }

    private static String optional(Optional<?> value) {
        return value.map(Object::toString).orElse(NONE);
    }

    private static void print(Object... fields) {
        List<String> texts = new ArrayList<>();
        for (Object field : fields) {
            texts.add(field.toString());
        }
        System.out.println(String.join("\t", texts));
    }
}
