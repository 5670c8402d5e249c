//go:build !race

package membership

import (
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership/identity"
)

// machine is a host whose process can be stalled and whose packets can be lost. Streams of a
// machine that loses packets are not opened, with the same chance: their handshake has to arrive.
type machine struct {
	*memnet.Host
	field *field

	mu      sync.Mutex
	cond    *sync.Cond
	stalled bool
	loss    float64 // of what this machine sends
	random  *rand.Rand
}

// stall stops the process as in the experiments of Lifeguard: it blocks just before it sends and just
// after it has received.
func (m *machine) stall(on bool) {
	m.mu.Lock()
	m.stalled = on
	m.mu.Unlock()
	m.cond.Broadcast()
}

func (m *machine) wait() {
	m.mu.Lock()
	for m.stalled {
		m.cond.Wait()
	}
	m.mu.Unlock()
}

func (m *machine) lose(share float64) {
	m.mu.Lock()
	m.loss = share
	m.mu.Unlock()
}

func (m *machine) loses() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loss > 0 && m.random.Float64() < m.loss
}

func (m *machine) ListenPacket(addr string) (net.PacketConn, error) {
	c, err := m.Host.ListenPacket(addr)
	return machinePackets{c, m}, err
}

type machinePackets struct {
	net.PacketConn
	m *machine
}

func (c machinePackets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	c.m.wait()
	return n, from, err
}

func (c machinePackets) WriteTo(b []byte, to net.Addr) (int, error) {
	c.m.wait()
	if c.m.loses() {
		return len(b), nil
	}
	return c.PacketConn.WriteTo(b, to)
}

func (m *machine) Dial(ctx context.Context, addr string) (net.Conn, error) {
	m.wait()
	to := netip.MustParseAddrPort(addr).Addr()
	if m.loses() || m.field.at(to) != nil && m.field.at(to).loses() {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	return m.Host.Dial(ctx, addr)
}

func (m *machine) Listen(addr string) (net.Listener, error) {
	l, err := m.Host.Listen(addr)
	return machineListener{l, m}, err
}

type machineListener struct {
	net.Listener
	m *machine
}

func (l machineListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.m.wait()
	return c, err
}

// contender is one member of either kind.
type contender interface {
	size() int // members that it sees alive, itself included
	sees(id string) bool
	removed() map[string]int   // how often it removed each member as failed
	join(seeds []string) error // start is separate: all members exist before the first joins
	close()                    // as a crash
}

// proven is a member as a relay or worker runs it: with certificates and encrypted packets.
type proven struct {
	node  *Node
	mu    sync.Mutex
	count map[string]int
	end   context.CancelFunc
	done  sync.WaitGroup
}

func newProven(t *testing.T, f *field, id string, m *machine) contender {
	cfg := Config{Cluster: "test", Environment: "ci", ID: id, Role: identity.RoleWorker, BindAddr: m.IP().String() + ":7400",
		Seeds: f.seeds(), Network: m, Keyring: keyring(t, 1)}
	certified(t, f.authority, &cfg, nil)
	node, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &proven{node: node, count: make(map[string]int)}
}

func (p *proven) join([]string) error {
	if err := p.node.Start(context.Background()); err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	p.done.Go(func() {
		var before *Snapshot
		for s := range p.node.Watch(ctx) {
			p.mu.Lock()
			for _, m := range Diff(before, s).Failed {
				p.count[m.ID]++
			}
			p.mu.Unlock()
			before = s
		}
	})
	return nil
}

func (p *proven) size() int { return count(p.node) }

func (p *proven) sees(id string) bool {
	_, seen := p.node.Snapshot().Get(id)
	return seen
}

func (p *proven) removed() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *proven) close() {
	p.end()
	_ = p.node.Close()
	p.done.Wait()
}

// plain is memberlist with its configuration for one datacenter, as it is.
type plain struct {
	list  *memberlist.Memberlist
	mu    sync.Mutex
	count map[string]int
	alive map[string]bool
}

func newPlain(t *testing.T, _ *field, id string, m *machine) contender {
	p := &plain{count: make(map[string]int), alive: make(map[string]bool)}
	transport, err := newPlainTransport(m)
	if err != nil {
		t.Fatal(err)
	}
	cfg := memberlist.DefaultLANConfig()
	cfg.Name, cfg.Transport, cfg.Events, cfg.Logger = id, transport, p, log.New(io.Discard, "", 0)
	cfg.BindAddr, cfg.AdvertiseAddr, cfg.BindPort, cfg.AdvertisePort = m.IP().String(), m.IP().String(), 7400, 7400
	if p.list, err = memberlist.Create(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plain) join(seeds []string) error {
	_, err := p.list.Join(seeds)
	return err
}

func (p *plain) size() int                     { return p.list.NumMembers() }
func (p *plain) close()                        { _ = p.list.Shutdown() }
func (p *plain) NotifyUpdate(*memberlist.Node) {}
func (p *plain) removed() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *plain) NotifyJoin(n *memberlist.Node) {
	p.mu.Lock()
	p.alive[n.Name] = true
	p.mu.Unlock()
}

func (p *plain) sees(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alive[id]
}

// NotifyLeave counts a member that memberlist removed. Members of these tests never leave.
func (p *plain) NotifyLeave(n *memberlist.Node) {
	p.mu.Lock()
	p.count[n.Name]++
	p.alive[n.Name] = false
	p.mu.Unlock()
}

// plainTransport is memberlist's own transport, on a machine in memory.
type plainTransport struct {
	m       *machine
	packets net.PacketConn
	streams net.Listener
	packet  chan *memberlist.Packet
	stream  chan net.Conn
	end     chan struct{}
	done    sync.WaitGroup
}

func newPlainTransport(m *machine) (*plainTransport, error) {
	addr := m.IP().String() + ":7400"
	packets, err := m.ListenPacket(addr)
	streams, err2 := m.Listen(addr)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	t := &plainTransport{m: m, packets: packets, streams: streams, packet: make(chan *memberlist.Packet), stream: make(chan net.Conn), end: make(chan struct{})}
	t.done.Go(func() {
		for {
			b := make([]byte, 65536)
			n, from, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			select {
			case t.packet <- &memberlist.Packet{Buf: append([]byte(nil), b[:n]...), From: from, Timestamp: time.Now()}:
			case <-t.end:
				return
			}
		}
	})
	t.done.Go(func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			select {
			case t.stream <- c:
			case <-t.end:
				_ = c.Close()
				return
			}
		}
	})
	return t, nil
}

func (t *plainTransport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	return net.ParseIP(ip), port, nil
}

func (t *plainTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	_, err := t.packets.WriteTo(b, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	return time.Now(), err
}

func (t *plainTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.m.Dial(ctx, addr)
}

func (t *plainTransport) PacketCh() <-chan *memberlist.Packet { return t.packet }
func (t *plainTransport) StreamCh() <-chan net.Conn           { return t.stream }

func (t *plainTransport) Shutdown() error {
	close(t.end)
	err := errors.Join(t.packets.Close(), t.streams.Close())
	t.done.Wait()
	return err
}
