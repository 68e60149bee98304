package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const streamsSubtopologies = 10

// streamsGroup is a group of KIP-1071 driven from outside. Each member is a
// process of its own; every subtopology reads the same topic.
type streamsGroup struct {
	name    string
	topic   string
	parts   int
	members []*streamsMember

	beats atomic.Int64
	mu    sync.Mutex
	codes map[int]uint64
}

type streamsMember struct {
	id     string
	epoch  int32
	tasks  map[string][]int32
	status int  // number of statuses in the last response
	dirty  bool // its tasks changed and are not reported yet
	joined bool
}

func newStreamsGroup(name, topic string, parts, n int) *streamsGroup {
	g := &streamsGroup{name: name, topic: topic, parts: parts, codes: map[int]uint64{}}
	for i := range n {
		g.members = append(g.members, &streamsMember{id: fmt.Sprintf("%s-member-%d", name, i)})
	}
	return g
}

// request returns the next heartbeat: a join, a report of changed tasks, or one
// that changes nothing.
func (g *streamsGroup) request(m *streamsMember) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = g.name, m.id, m.epoch, -1
	if m.joined && !m.dirty {
		return req
	}
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	if m.joined {
		for id, partitions := range m.tasks {
			req.ActiveTasks = append(req.ActiveTasks, kmsg.TaskIDs{SubtopologyID: id, Partitions: partitions})
		}
		return req
	}
	req.RebalanceTimeoutMillis = 60_000
	req.ProcessID = kmsg.StringPtr(m.id)
	topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	for i := range streamsSubtopologies {
		part := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		part.SubtopologyID, part.SourceTopics = fmt.Sprint(i), []string{g.topic}
		topology.Subtopologies = append(topology.Subtopologies, part)
	}
	req.Topology = &topology
	return req
}

func (g *streamsGroup) beat(c *client, m *streamsMember) {
	r, err := c.do(g.request(m))
	if err != nil {
		fatal("%v", err)
	}
	resp := r.(*kmsg.StreamsGroupHeartbeatResponse)
	g.beats.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch resp.ErrorCode {
	case 0:
	case 14, 15, 16: // loading, not available, not coordinator
		g.codes[int(resp.ErrorCode)]++
		return
	case 25, 110: // unknown member, fenced: join anew
		g.codes[int(resp.ErrorCode)]++
		m.epoch, m.tasks, m.joined, m.dirty = 0, nil, false, false
		return
	default:
		fatal("StreamsGroupHeartbeat: error %d", resp.ErrorCode)
	}
	m.joined, m.dirty, m.epoch, m.status = true, false, resp.MemberEpoch, len(resp.Status)
	if resp.ActiveTasks != nil {
		m.tasks, m.dirty = map[string][]int32{}, true
		for _, t := range resp.ActiveTasks {
			m.tasks[t.SubtopologyID] = t.Partitions
		}
	}
}

// isStable says whether every task has one owner and all members are at one
// epoch without a status.
func (g *streamsGroup) isStable() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := map[string]bool{}
	n := 0
	for _, m := range g.members {
		if !m.joined || m.dirty || m.status > 0 || m.epoch != g.members[0].epoch {
			return false
		}
		for id, partitions := range m.tasks {
			for _, p := range partitions {
				seen[fmt.Sprintf("%s_%d", id, p)] = true
				n++
			}
		}
	}
	return n == len(seen) && n == streamsSubtopologies*g.parts
}

// settle beats all members over the given connections until the group is
// stable, at least `pause` between two beats of a member.
func (g *streamsGroup) settle(clients []*client, pause, limit time.Duration) (time.Duration, bool) {
	start := time.Now()
	var over atomic.Bool
	var stableAt atomic.Int64
	var wg sync.WaitGroup
	for k, c := range clients {
		wg.Go(func() {
			for !over.Load() && time.Since(start) < limit {
				round := time.Now()
				for i := k; i < len(g.members) && !over.Load(); i += len(clients) {
					g.beat(c, g.members[i])
				}
				if g.isStable() {
					stableAt.CompareAndSwap(0, int64(time.Since(start)))
					over.Store(true)
				}
				if rest := pause - time.Since(round); rest > 0 && !over.Load() {
					time.Sleep(rest)
				}
			}
		})
	}
	wg.Wait()
	return time.Duration(stableAt.Load()), over.Load()
}

func (g *streamsGroup) leave(c *client) {
	for _, m := range g.members {
		m.joined, m.dirty, m.epoch = true, false, -1
		must[*kmsg.StreamsGroupHeartbeatResponse](c, g.request(m))
	}
}

// streamsHeartbeats forms groups and returns the heartbeats of their members at rest.
func streamsHeartbeats(o *options, c *client, run string) ([][]byte, func()) {
	const parts = 10
	topic(c, "commits-10", parts)
	coordinatorReady(c, 0, "any")
	var groups []*streamsGroup
	var wg sync.WaitGroup
	for _, name := range names(run, o.groups) { // at a time: each waits for its initial rebalance delay
		g := newStreamsGroup(name, "commits-10", parts, o.members)
		groups = append(groups, g)
		wg.Go(func() {
			own := mustDial(o.addr)
			defer own.close()
			if _, ok := g.settle([]*client{own}, 200*time.Millisecond, time.Minute); !ok {
				fatal("group %s does not get stable", name)
			}
		})
	}
	wg.Wait()
	var frames [][]byte
	for m := range o.members {
		for _, g := range groups {
			frames = append(frames, encode(g.request(g.members[m])))
		}
	}
	return frames, func() {
		for _, g := range groups {
			g.leave(c)
		}
	}
}

// streamsStorm times one group of n processes from nothing to stable.
func streamsStorm(o *options, c *client) result {
	parts := max(o.partitions/streamsSubtopologies, 1)
	name := fmt.Sprintf("storm-%d", parts)
	topic(c, name, parts)
	coordinatorReady(c, 0, "any")
	clients := make([]*client, min(o.conns, o.members))
	for i := range clients {
		clients[i] = mustDial(o.addr)
	}
	r := result{errors: map[int]uint64{}}
	var times, cpu []float64
	var beats int64
	for i := range o.repeat {
		g := newStreamsGroup(fmt.Sprintf("sstorm-%x-%d", time.Now().UnixMilli(), i), name, parts, o.members)
		before := takeUsage(o.pid)
		took, ok := g.settle(clients, o.beat, 2*time.Minute)
		used := takeUsage(o.pid).since(before)
		if !ok {
			r.errors[-1]++
		}
		g.leave(c)
		if i == 0 { // the first one warms up
			continue
		}
		times = append(times, round(took.Seconds()*1000, 1))
		cpu = append(cpu, round(used.server*1000, 1))
		beats += g.beats.Load()
		r.requests += uint64(g.beats.Load())
		r.used.server += used.server
	}
	r.extra = map[string]any{"stable_ms": times, "heartbeats": beats, "server_cpu_ms": cpu,
		"server_cpu_s_per_storm": round(r.used.server/float64(max(len(times), 1)), 3)}
	return r
}
