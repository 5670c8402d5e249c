package discovery

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
)

// server is a real DNS server on loopback, UDP and TCP, whose zone tests change.
type server struct {
	addr string

	mu     sync.Mutex
	zone   map[string][]string                // "NAME TYPE" to records in zone-file form
	rcodes map[string]int                     // by name or "NAME TYPE", instead of an answer
	extra  map[string][]string                // additional section, by "NAME TYPE"
	soa    map[string]string                  // by name: the authority section of a no
	silent map[string]bool                    // by name: never answers
	cut    int                                // how many records an answer over UDP keeps before it is truncated; -1: all
	opt    func(dns.ResponseWriter, *dns.Msg) // answers questions with OPT, when set
	held   chan struct{}                      // when set, answers wait until it is closed
	counts map[string]int                     // queries by "NAME TYPE" and by "udp", "tcp"
	now    int                                // queries being held
	most   int                                // the most there ever were

	stop, stopTCP func()
}

func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{
		zone: map[string][]string{}, rcodes: map[string]int{}, extra: map[string][]string{},
		soa: map[string]string{}, cut: -1, silent: map[string]bool{}, counts: map[string]int{},
	}
	var packets net.PacketConn
	var streams net.Listener
	for range 20 { // the free UDP port may be a taken TCP port
		var err error
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if streams, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			break
		}
		packets.Close()
	}
	if streams == nil {
		t.Fatal("no port that is free for UDP and TCP")
	}
	s.addr = packets.LocalAddr().String()
	udp := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(s.serve)}
	tcp := &dns.Server{Listener: streams, Handler: dns.HandlerFunc(s.serve)}
	var wg sync.WaitGroup
	for _, d := range []*dns.Server{udp, tcp} {
		up := make(chan struct{})
		d.NotifyStartedFunc = func() { close(up) }
		wg.Go(func() { _ = d.ActivateAndServe() })
		<-up
	}
	s.stopTCP = sync.OnceFunc(func() { _ = tcp.Shutdown() })
	s.stop = sync.OnceFunc(func() {
		_ = udp.Shutdown()
		s.stopTCP()
		wg.Wait()
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) serve(w dns.ResponseWriter, q *dns.Msg) {
	name := strings.TrimSuffix(q.Question[0].Name, ".")
	key := name + " " + dns.TypeToString[q.Question[0].Qtype]
	network := w.LocalAddr().Network()
	s.mu.Lock()
	s.counts[key]++
	s.counts[network]++
	held := s.held
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if s.silent[name] {
		return
	}
	if s.opt != nil && q.IsEdns0() != nil {
		s.opt(w, q)
		return
	}
	reply := new(dns.Msg).SetReply(q)
	_, known := s.zone[key]
	for k := range s.zone {
		known = known || strings.HasPrefix(k, name+" ")
	}
	if code, ok := s.rcodes[name]; ok {
		reply.Rcode = code
	} else if code, ok := s.rcodes[key]; ok {
		reply.Rcode = code
	} else if !known {
		reply.Rcode = dns.RcodeNameError
	}
	if reply.Rcode == dns.RcodeSuccess {
		reply.Answer = parseRecords(s.zone[key])
		reply.Extra = parseRecords(s.extra[key])
	}
	if soa := s.soa[name]; soa != "" && len(reply.Answer) == 0 {
		reply.Ns = parseRecords([]string{soa})
	}
	if s.cut >= 0 && network == "udp" {
		reply.Answer, reply.Extra, reply.Truncated = reply.Answer[:min(s.cut, len(reply.Answer))], nil, true
	}
	_ = w.WriteMsg(reply)
}

func parseRecords(lines []string) (out []dns.RR) {
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		out = append(out, rr)
	}
	return out
}

// set replaces the A records of a name.
func (s *server) set(name string, ttl int, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rcodes, name)
	var a, aaaa []string
	for _, addr := range addrs {
		if netip.MustParseAddr(addr).Is4() {
			a = append(a, fmt.Sprintf("%s. %d IN A %s", name, ttl, addr))
		} else {
			aaaa = append(aaaa, fmt.Sprintf("%s. %d IN AAAA %s", name, ttl, addr))
		}
	}
	s.zone[name+" A"], s.zone[name+" AAAA"] = a, aaaa
}

// records replaces the records of one type of a name.
func (s *server) records(name, kind string, lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name+" "+kind] = lines
}

func (s *server) additional(name, kind string, lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra[name+" "+kind] = lines
}

func (s *server) fail(name string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcodes[name] = rcode
}

// deny adds a SOA record to the negative answer for a name.
func (s *server) deny(name, soa string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.soa[name] = soa
}

func (s *server) hang(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		s.silent[n] = true
	}
}

// truncate makes every answer over UDP keep only its first records.
func (s *server) truncate(kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = kept
}

// withoutEDNS makes the server answer questions with OPT by a function.
func (s *server) withoutEDNS(answer func(dns.ResponseWriter, *dns.Msg)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt = answer
}

// hold makes every query wait until the returned function is called.
func (s *server) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.held = nil
		s.mu.Unlock()
		close(held)
	})
}

func (s *server) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[key]
}

func (s *server) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *server) peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// clock is the time of a cache in a test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rig is a resolver with its server, clock, log and metrics.
type rig struct {
	*Resolver
	server  *server
	clock   *clock
	log     *logtest.Log
	metrics *prometheus.Registry
}

// newRig makes a resolver that asks a server of its own. change may alter the
// configuration before that.
func newRig(t *testing.T, change func(*ResolverConfig)) *rig {
	t.Helper()
	g := &rig{server: startServer(t), clock: newClock(), log: &logtest.Log{}, metrics: prometheus.NewRegistry()}
	cfg := ResolverConfig{
		Servers: []string{g.server.addr}, HostsFile: filepath.Join(t.TempDir(), "none"),
		Now: g.clock.Now, Logger: slog.New(slog.NewTextHandler(g.log, nil)), Registerer: g.metrics,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if g.Resolver, err = NewResolver(cfg); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) host(t *testing.T, name string, mode Mode) Result {
	t.Helper()
	res, err := g.LookupHost(t.Context(), name, mode)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// metricValue reads a counter or gauge, one label value at most.
func metricValue(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	return logtest.Value(t, reg, name, label)
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func addrPorts(texts ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range texts {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
