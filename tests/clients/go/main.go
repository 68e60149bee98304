// Share consumers of franz-go, for the tests.
//
//	program modes BOOTSTRAP               prints a line for each mode that went as expected
//	program follow BOOTSTRAP GROUP TOPIC  accepts all records; prints the values once they are acknowledged
//	program work BOOTSTRAP GROUP TOPIC SEED  accepts, rejects and releases records at random until its input ends
//
// With KAFKA_USER and KAFKA_PASSWORD in the environment, it logs in with PLAIN.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const limit = 60 * time.Second

var bootstrap string

// connect makes a client with the bootstrap address and the credentials.
func connect(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(bootstrap))
	if user := os.Getenv("KAFKA_USER"); user != "" {
		auth := plain.Auth{User: user, Pass: os.Getenv("KAFKA_PASSWORD")}
		options = append(options, kgo.SASL(auth.AsMechanism()))
	}
	client, err := kgo.NewClient(options...)
	must(err)
	return client
}

func main() {
	bootstrap = os.Args[2]
	switch os.Args[1] {
	case "modes":
		implicit()
		explicit()
		renewal()
		released()
	case "follow":
		follow(os.Args[3], os.Args[4])
	case "work":
		seed, err := strconv.ParseInt(os.Args[5], 10, 64)
		must(err)
		work(os.Args[3], os.Args[4], rand.New(rand.NewSource(seed)))
	}
}

// implicit lets polls accept the records, and checks that a second member gets none of them.
func implicit() {
	prepare("go-implicit", 3, 300)
	first := newMember("go-implicit", "go-implicit", "go-implicit")
	values := map[string]int{}
	for until := time.Now().Add(limit); len(values) < 300 && time.Now().Before(until); {
		for _, record := range first.poll(500 * time.Millisecond) {
			values[string(record.Value)]++
		}
	}
	check(len(values) == 300, "%d different values", len(values))
	for value, count := range values {
		check(count == 1, "%s came %d times", value, count)
	}
	first.poll(100 * time.Millisecond) // accepts the last records
	first.flush()
	first.client.Close()
	first.checkConfirmed(300)
	second := newMember("go-implicit", "go-implicit", "go-implicit")
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		check(len(second.poll(500*time.Millisecond)) == 0, "an acknowledged record came again")
	}
	second.client.Close()
	fmt.Println("ok: each record once, and never again")
}

// explicit accepts, releases and rejects records, and checks the number of deliveries of each.
func explicit() {
	prepare("go-explicit", 1, 9)
	member := newMember("go-explicit", "go-explicit", "go-explicit")
	counts := map[int64]int32{}
	redelivered := 0
	for until := time.Now().Add(limit); (len(counts) < 9 || redelivered < 3) && time.Now().Before(until); {
		for _, record := range member.poll(500 * time.Millisecond) {
			counts[record.Offset] = record.DeliveryCount()
			switch {
			case record.Offset%3 == 1 && record.DeliveryCount() == 1:
				record.Ack(kgo.AckRelease)
			case record.Offset%3 == 2:
				record.Ack(kgo.AckReject)
			default:
				record.Ack(kgo.AckAccept)
			}
			if record.DeliveryCount() == 2 {
				redelivered++
			}
		}
		member.flush()
	}
	for offset := int64(0); offset < 9; offset++ {
		want := int32(1)
		if offset%3 == 1 {
			want = 2
		}
		check(counts[offset] == want, "record %d was delivered %d times", offset, counts[offset])
	}
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		check(len(member.poll(200*time.Millisecond)) == 0, "an acknowledged record came again")
	}
	member.client.Close()
	fmt.Println("ok: released records come again, rejected ones do not")
}

// renewal keeps a record for longer than its lock, which it renews twice, and accepts it; nobody gets it again.
func renewal() {
	prepare("go-renewal", 1, 1)
	configure("go-renewal", "share.record.lock.duration.ms", "6000")
	member := newMember("go-renewal", "go-renewal", "go-renewal")
	record := member.next()
	for i := 0; i < 3; i++ {
		time.Sleep(3 * time.Second)
		if i < 2 {
			record.Ack(kgo.AckRenew)
			member.flush()
		}
	}
	record.Ack(kgo.AckAccept)
	member.flush()
	member.checkConfirmed(1)
	check(len(member.poll(500*time.Millisecond)) == 0, "the renewed record came again")
	member.client.Close()
	fmt.Println("ok: a lock is renewed")
}

// released closes a member that holds a record, which another member then gets with the next delivery count.
func released() {
	prepare("go-released", 1, 1)
	first := newMember("go-released", "go-released", "go-released")
	check(first.next().DeliveryCount() == 1, "the first delivery has another count")
	second := newMember("go-released", "go-released", "go-released")
	defer second.client.Close()
	first.client.Close()
	record := second.next()
	check(record.DeliveryCount() == 2, "the second delivery has count %d", record.DeliveryCount())
	record.Ack(kgo.AckAccept)
	second.flush()
	fmt.Println("ok: a member that leaves releases its records")
}

// follow prints the values of records after their acknowledgement was confirmed.
func follow(group, topic string) {
	member := newMember("go-follow", group, topic)
	values := map[string]string{}
	member.confirmed = func(result kgo.ShareAckResult) {
		if result.Err != nil {
			fmt.Printf("failed %v\n", result.Err)
		}
	}
	stop := untilEndOfInput()
	for !stop() {
		records := member.poll(200 * time.Millisecond)
		for _, record := range records {
			key := fmt.Sprintf("%d-%d", record.Partition, record.Offset)
			values[key] = string(record.Value)
			record.Ack(kgo.AckAccept)
		}
		if len(records) == 0 {
			continue
		}
		before := member.failures()
		member.flush()
		for _, record := range records {
			key := fmt.Sprintf("%d-%d", record.Partition, record.Offset)
			if member.failures() == before {
				fmt.Println("done", values[key], record.DeliveryCount())
			}
		}
	}
	member.client.Close()
}

// work acknowledges records at random. It releases only records of few deliveries, so that none is archived.
func work(group, topic string, rng *rand.Rand) {
	member := newMember("franz-go", group, topic)
	stop := untilEndOfInput()
	for !stop() {
		records := member.poll(100 * time.Millisecond)
		for _, record := range records {
			switch chosen := rng.Float64(); {
			case chosen < 0.15 && record.DeliveryCount() < 4:
				record.Ack(kgo.AckRelease)
			case chosen < 0.3:
				record.Ack(kgo.AckReject)
			default:
				record.Ack(kgo.AckAccept)
			}
		}
		if len(records) > 0 && rng.Float64() < 0.5 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			member.client.FlushAcks(ctx)
			cancel()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	member.client.LeaveGroupContext(ctx)
}

// member is a client that counts its acknowledgements.
type member struct {
	client    *kgo.Client
	confirmed func(kgo.ShareAckResult)
	mu        sync.Mutex
	results   int
	failed    int
}

func newMember(clientID, group, topic string) *member {
	m := &member{}
	m.client = connect(
		kgo.ClientID(clientID), kgo.ShareGroup(group), kgo.ConsumeTopics(topic),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.ShareMaxRecords(20),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, result := range results {
				m.results++
				if result.Err != nil {
					m.failed++
				}
				if m.confirmed != nil {
					m.confirmed(result)
				}
			}
		}),
	)
	return m
}

func (m *member) failures() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

func (m *member) checkConfirmed(records int) {
	check(m.results > 0 && m.failed == 0, "%d of %d acknowledgement results failed for %d records", m.failed, m.results, records)
}

func (m *member) poll(wait time.Duration) []*kgo.Record {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return m.client.PollRecords(ctx, 50).Records()
}

func (m *member) next() *kgo.Record {
	for until := time.Now().Add(limit); time.Now().Before(until); {
		if records := m.poll(500 * time.Millisecond); len(records) > 0 {
			return records[0]
		}
	}
	check(false, "no record")
	return nil
}

func (m *member) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must(m.client.FlushAcks(ctx))
}

// untilEndOfInput returns a function that tells whether the standard input has ended.
func untilEndOfInput() func() bool {
	ended := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		}
		close(ended)
	}()
	return func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
}

// prepare makes a topic with records, and a group of the same name that begins at the first record.
func prepare(name string, partitions int32, records int) {
	client := connect(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	create := kmsg.NewCreateTopicsRequest()
	create.Topics = append(create.Topics, topic)
	created, err := create.RequestWith(ctx, client)
	must(err)
	must(kerr.ErrorForCode(created.Topics[0].ErrorCode))
	configure(name, "share.auto.offset.reset", "earliest")
	for i := 0; i < records; i++ {
		record := &kgo.Record{Topic: name, Partition: int32(i) % partitions, Value: []byte(fmt.Sprintf("value-%d", i))}
		client.Produce(ctx, record, nil)
	}
	must(client.Flush(ctx))
}

// configure changes a setting of a group.
func configure(group, name, value string) {
	client := connect()
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, &value
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, config)
	alter := kmsg.NewIncrementalAlterConfigsRequest()
	alter.Resources = append(alter.Resources, resource)
	altered, err := alter.RequestWith(ctx, client)
	must(err)
	must(kerr.ErrorForCode(altered.Resources[0].ErrorCode))
}

func check(condition bool, format string, arguments ...any) {
	if !condition {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func must(err error) {
	check(err == nil, "%v", err)
}
