// Package control tests a consumer whose commits meet faults.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// control sends a request to the control server; result may be nil.
func control(t *testing.T, method, path string, body, result any) {
	t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, os.Getenv("KCORE_CONTROL")+path, bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		var failure struct{ Error, Message string }
		_ = json.NewDecoder(response.Body).Decode(&failure)
		t.Fatalf("%s %s: %s: %s", method, path, failure.Error, failure.Message)
	}
	if result != nil {
		if err := json.NewDecoder(response.Body).Decode(result); err != nil {
			t.Fatal(err)
		}
	}
}

type object map[string]any

// consume produces a record and returns a consumer that has fetched it.
func consume(t *testing.T, ctx context.Context, name string) *kgo.Client {
	t.Helper()
	t.Cleanup(func() { control(t, "DELETE", "/faults", object{}, nil) })
	control(t, "POST", "/topics", object{"name": name}, nil)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KCORE_BOOTSTRAP")),
		kgo.ClientID("worker"),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: name, Value: []byte("work")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil || fetches.NumRecords() != 1 {
		t.Fatalf("%d records, %v", fetches.NumRecords(), err)
	}
	return client
}

func TestARefusedCommitIsReported(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := consume(t, ctx, "go-refused")
	control(t, "POST", "/faults", object{
		"action": "fail", "api": "OffsetCommit", "group": "go-refused", "error": "GROUP_AUTHORIZATION_FAILED",
	}, nil)
	if err := client.CommitUncommittedOffsets(ctx); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Fatalf("the commit returned %v", err)
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	control(t, "POST", "/groups/go-refused/assert-committed", object{
		"offsets": []object{{"topic": "go-refused", "partition": 0, "offset": 1}},
	}, nil)
}

func TestAnExpiredMemberCannotCommit(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := consume(t, ctx, "go-expired")
	control(t, "POST", "/groups/go-expired/expire", object{"client_id": "worker"}, nil)
	if err := client.CommitUncommittedOffsets(ctx); err == nil {
		t.Fatal("a member without a session committed")
	}
	var history struct{ Table string }
	control(t, "GET", "/groups/go-expired/history", object{}, &history)
	if !strings.Contains(history.Table, "fenced") {
		t.Fatal(history.Table)
	}
}
