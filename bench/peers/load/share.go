package main

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	vShareGroupHeartbeat = 1
	vShareFetch          = 2
	groupResource        = 32
)

// worker is one member of a share group. It appends a batch to its own
// partition, then acquires it and accepts what it acquired before, in turns.
type worker struct {
	produce []byte
	fetch   kmsg.ShareFetchRequest
	topic   [16]byte
	part    int32
	acquire bool
}

func (w *worker) next(_ int, corr uint32, out []byte, stop bool) ([]byte, bool) {
	if stop {
		return out, false
	}
	if !w.acquire {
		at := len(out)
		out = append(out, w.produce...)
		binary.BigEndian.PutUint32(out[at+corrAt:], corr)
		return out, true
	}
	return formatter.AppendRequest(out, &w.fetch, int32(corr)), true
}

func (w *worker) done(_ int, body []byte, t *tally) time.Duration {
	if !w.acquire {
		checkProduce(body, t)
		w.acquire = true
		return 0
	}
	w.acquire = false
	var resp kmsg.ShareFetchResponse
	resp.Version = vShareFetch
	if err := resp.ReadFrom(body[1:]); err != nil {
		t.fail(badResponse)
		return 0
	}
	if resp.ErrorCode != 0 {
		t.fail(resp.ErrorCode)
	}
	w.fetch.ShareSessionEpoch++
	part := kmsg.ShareFetchRequestTopicPartition{Partition: w.part}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if rp.ErrorCode != 0 {
				t.fail(rp.ErrorCode)
			}
			if rp.AcknowledgeErrorCode != 0 {
				t.fail(rp.AcknowledgeErrorCode)
			}
			for _, got := range rp.AcquiredRecords {
				t.txns += uint64(got.LastOffset - got.FirstOffset + 1)
				ack := kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: got.FirstOffset, LastOffset: got.LastOffset, AcknowledgeTypes: []int8{1}}
				part.AcknowledgementBatches = append(part.AcknowledgementBatches, ack)
			}
		}
	}
	w.fetch.Topics = w.fetch.Topics[:0]
	if len(part.AcknowledgementBatches) == 0 {
		t.fail(noRecords)
	} else {
		w.fetch.Topics = append(w.fetch.Topics, kmsg.ShareFetchRequestTopic{TopicID: w.topic, Partitions: []kmsg.ShareFetchRequestTopicPartition{part}})
	}
	return 0
}

// shareWorkers forms one share group with a member for each connection, and a
// topic with a partition for each member.
func shareWorkers(o *options, c *client, run string) []source {
	id := topic(c, run, o.conns)
	startEarliest(c, run)
	coordinatorReady(c, 0, run)
	members := names("00000000-0000-0000-0000-0000000", o.conns)
	assigned := 0
	for try := 0; assigned == 0; try++ {
		if try > 500 {
			fatal("the share group gets no partitions")
		}
		for i, member := range members {
			req := kmsg.NewShareGroupHeartbeatRequest()
			req.Version, req.GroupID, req.MemberID, req.SubscribedTopicNames = vShareGroupHeartbeat, run, member, []string{run}
			resp := must[*kmsg.ShareGroupHeartbeatResponse](c, &req)
			if resp.ErrorCode != 0 && resp.ErrorCode != 14 && resp.ErrorCode != 15 && resp.ErrorCode != 16 {
				fatal("ShareGroupHeartbeat: error %d", resp.ErrorCode)
			}
			if i == 0 {
				assigned = 0
			}
			if resp.Assignment != nil {
				for _, t := range resp.Assignment.TopicPartitions {
					assigned += len(t.Partitions)
				}
			}
		}
		if assigned < o.conns {
			assigned = 0
			time.Sleep(100 * time.Millisecond)
		}
	}
	var srcs []source
	for i, frame := range produceFrames(run, o.conns, o.records) {
		w := &worker{produce: frame, topic: id, part: int32(i)}
		group, member := run, members[i]
		req := kmsg.NewShareFetchRequest()
		req.Version, req.GroupID, req.MemberID = vShareFetch, &group, &member
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = 500, 1, 1<<20, 1000, 1000
		req.Topics = []kmsg.ShareFetchRequestTopic{{TopicID: id, Partitions: []kmsg.ShareFetchRequestTopicPartition{{Partition: int32(i)}}}}
		w.fetch = req
		srcs = append(srcs, w)
	}
	return srcs
}

// startEarliest makes a share group begin at the first record of each partition.
func startEarliest(c *client, group string) {
	value := "earliest"
	req := kmsg.NewIncrementalAlterConfigsRequest()
	req.Version = 1
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = groupResource, group
	conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	conf.Name, conf.Value = "share.auto.offset.reset", &value
	res.Configs = append(res.Configs, conf)
	req.Resources = append(req.Resources, res)
	resp := must[*kmsg.IncrementalAlterConfigsResponse](c, &req)
	if e := resp.Resources[0].ErrorCode; e != 0 {
		fatal("IncrementalAlterConfigs of group %s: error %d", group, e)
	}
}

func shareExtra(t tally, used usage) map[string]any {
	extra := map[string]any{"records": t.txns}
	if used.server > 0 {
		extra["records_per_server_cpu_s"] = round(float64(t.txns)/used.server, 0)
	}
	return extra
}
