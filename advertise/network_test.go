package advertise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// network is a gossip network in memory: lossy broadcasts to three random
// members every 200 ms, reliable streams, and membership that the test decides.
type network struct {
	t       *testing.T
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	loss    float64
	authors authors // nil: a fleet without certificates

	mu      sync.Mutex
	version uint64
	members map[string]membership.Member
	nodes   map[string]*node
	// onStream hears, with mu held, of every stream that is opened (+1) or closed
	// (-1) by its initiator. Nil: none.
	onStream func(from, to string, change int)
	// dialTime is how long it takes to open a stream.
	dialTime time.Duration
}

// node is one member's end of the network.
type node struct {
	author
	net       *network
	member    membership.Member
	stop      context.CancelFunc
	snapshots publish.Value[membership.Snapshot]
	hear      func([]byte)
	serve     func(context.Context, membership.Peer, net.Conn)
	catalogue *Catalogue
	registry  *prometheus.Registry

	mu    sync.Mutex
	queue map[string]*queued
}

type queued struct {
	payload []byte
	left    int
}

func newNetwork(t *testing.T, loss float64) *network {
	ctx, cancel := context.WithCancel(context.Background())
	return &network{t: t, ctx: ctx, stop: cancel, loss: loss, members: map[string]membership.Member{}, nodes: map[string]*node{}}
}

// close ends every goroutine; a synctest bubble must not keep any.
func (n *network) close() {
	n.stop()
	n.running.Wait()
}

// join starts a member's process: a new life with a new epoch.
func (n *network) join(id string, role identity.Role) *node {
	return n.joinWith(id, role, func(*Config) {})
}

func (n *network) joinWith(id string, role identity.Role, change func(*Config)) *node {
	m := membership.Member{ID: id, Epoch: uint64(time.Now().UnixMilli()), Role: role, Datacenter: "dc-1"}
	p := &node{author: author{n.authors, id}, net: n, member: m, queue: map[string]*queued{}, registry: prometheus.NewRegistry()}
	cfg := Config{Gossip: p, Registerer: p.registry}
	change(&cfg)
	c, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	p.catalogue = c
	ctx, stop := context.WithCancel(n.ctx)
	p.stop = stop
	n.mu.Lock()
	n.nodes[id] = p
	n.members[id] = m
	n.publish()
	n.mu.Unlock()
	n.running.Go(func() { _ = c.Run(ctx) })
	n.running.Go(func() { p.gossip(ctx) })
	return p
}

// kill stops the process; detect is when the others notice.
func (n *network) kill(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[id].stop()
	delete(n.nodes, id)
}

func (n *network) detect(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.members, id)
	n.publish()
}

// publish is called with mu held.
func (n *network) publish() {
	n.version++
	for id, p := range n.nodes {
		var members []membership.Member
		for _, m := range n.members {
			members = append(members, m)
		}
		p.snapshots.Store(membership.NewSnapshot(n.version, id, members))
	}
}

func (n *network) others(id string) []*node {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*node
	for other, p := range n.nodes {
		if other != id {
			out = append(out, p)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (p *node) gossip(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		others := p.net.others(p.member.ID)
		p.mu.Lock()
		var batch [][]byte
		for key, q := range p.queue {
			batch = append(batch, q.payload)
			if q.left--; q.left <= 0 {
				delete(p.queue, key)
			}
		}
		p.mu.Unlock()
		for _, to := range others[:min(3, len(others))] {
			for _, payload := range batch {
				if rand.Float64() >= p.net.loss {
					to.hear(append([]byte(nil), payload...))
				}
			}
		}
	}
}

func (p *node) Snapshot() *membership.Snapshot { return p.snapshots.Load() }
func (p *node) Watch(ctx context.Context) <-chan *membership.Snapshot {
	return p.snapshots.Watch(ctx)
}

func (p *node) Broadcast(_ byte, key string, payload []byte) error {
	if len(payload) > 1200 {
		return errors.New("too large")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue[key] = &queued{payload, 4}
	return nil
}

func (p *node) HandleGossip(_ byte, h func([]byte)) { p.hear = h }
func (p *node) Leave(context.Context) error         { return nil }

func (p *node) HandleStream(_ string, h func(context.Context, membership.Peer, net.Conn)) {
	p.serve = h
}

func (p *node) OpenStream(_ context.Context, id, _ string) (net.Conn, error) {
	time.Sleep(p.net.dialTime)
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	to := p.net.nodes[id]
	if to == nil {
		return nil, fmt.Errorf("dial %q: no such process", id)
	}
	serve := to.serve
	ours, theirs := net.Pipe()
	p.net.running.Go(func() {
		serve(p.net.ctx, membership.Peer{ID: p.member.ID, Epoch: p.member.Epoch, Role: p.member.Role}, theirs)
		_ = theirs.Close()
	})
	if p.net.onStream == nil {
		return ours, nil
	}
	p.net.onStream(p.member.ID, id, +1)
	return &watchedConn{Conn: ours, closed: sync.OnceFunc(func() {
		p.net.mu.Lock()
		defer p.net.mu.Unlock()
		p.net.onStream(p.member.ID, id, -1)
	})}, nil
}

type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// count reads a counter by its name and the value of any of its labels.
func (p *node) count(name, label string) (total float64) {
	p.net.t.Helper()
	for labels, n := range logtest.Series(p.net.t, p.registry, "ringway_advertise_"+name) {
		if slices.Contains(strings.Split(labels, ","), label) {
			total += n
		}
	}
	return total
}

func echo(port int) []Service {
	return []Service{{Name: "echo", Address: fmt.Sprintf("127.0.0.1:%d", port)}}
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
