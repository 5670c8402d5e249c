package presence

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Bounds of sessions.
const (
	// helloTimeout is how long a worker may take to identify itself, and recordTimeout for its
	// first record after that. Beats do not prolong it.
	helloTimeout  = 3 * time.Second
	recordTimeout = session.Silence
	// sessionsPerSource bounds the sessions of one source: an IPv4 address or a /64 network of
	// IPv6. A host runs hundreds of workers at most, but many hosts may share an address.
	sessionsPerSource = 4096
	// sessionsPerID: one of a worker, and a new one that replaces it.
	sessionsPerID = 2
	// framesPerMinute and framesBurst bound the frames of one session: each record and each state
	// goes to all relays. A worker publishes once a second at most, and sends a beat every few.
	framesPerMinute = 120
	framesBurst     = 60
	// futureEpoch is how far ahead of this clock the start of a worker may be.
	futureEpoch = 10 * time.Minute
	// maxWorkerFrame bounds every frame of a worker.
	maxWorkerFrame = max(advertise.MaxRecordBytes, session.MaxHello)
)

// Reasons of ringway_session_refused_total.
const (
	refusedMalformed  = "malformed"
	refusedTimeout    = "timeout"
	refusedCluster    = "cluster"
	refusedIdentity   = "identity"
	refusedEpoch      = "epoch"
	refusedSuperseded = "superseded"
	refusedTaken      = "id_taken"
	refusedSource     = "too_many_from_source"
	refusedID         = "too_many_of_certificate"
	refusedTotal      = "too_many"
	refusedRecord     = "record"
	refusedFlood      = "too_many_frames"
)

var refusedReasons = []string{
	refusedMalformed, refusedTimeout, refusedCluster, refusedIdentity, refusedEpoch, refusedSuperseded, refusedTaken,
	refusedSource, refusedID, refusedTotal, refusedRecord, refusedFlood,
}

// ServerConfig describes a Server. All fields are required.
type ServerConfig struct {
	Fleet *Fleet
	// RowSize returns how many relays a worker should have sessions with.
	RowSize    func() int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Server holds the sessions of one relay.
type Server struct {
	cfg     ServerConfig
	fleet   *Fleet
	refused *prometheus.CounterVec
	gauge   prometheus.Gauge
	lines   *rate.Limiter
	known   atomic.Pointer[known] // of the snapshot that was asked for last

	mu      sync.Mutex // guards the fields below
	held    map[*held]struct{}
	byID    map[string][]*held
	sources map[netip.Prefix]int
	closed  bool
	running sync.WaitGroup
}

// NewServer returns a server without sessions.
func NewServer(cfg ServerConfig) *Server {
	f := metric.With(cfg.Registerer)
	s := &Server{
		cfg: cfg, fleet: cfg.Fleet, lines: rate.NewLimiter(1, 8), held: map[*held]struct{}{}, byID: map[string][]*held{}, sources: map[netip.Prefix]int{},
		refused: f.CounterVec("ringway_session_refused_total", "Sessions of attached workers refused or ended by this relay, by reason: malformed (a frame), timeout (no hello or record in time), cluster (another cluster or environment), identity (not that of its certificate), epoch (it starts in the future), superseded (a later life of the id is attached), id_taken (another kind of member has the id), too_many_from_source, too_many_of_certificate, too_many (--max-members), record (not signed by the worker, or of another), too_many_frames.", "reason"),
		gauge:   f.Gauge("ringway_session_held", "Sessions that attached workers have with this relay."),
	}
	metric.StartAtZero(s.refused, refusedReasons...)
	return s
}

// Run sends rows to workers when relays come and go, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	snapshots := s.fleet.Watch(ctx)
	var last string
	for snapshot := range snapshots {
		// Only relays are in rows.
		key := fmt.Sprint(s.cfg.RowSize())
		for _, m := range s.relays(snapshot) {
			key += fmt.Sprintf(" %s %d %s %t %t", m.ID, m.Epoch, m.ForwardAddr, m.Draining, m.Leaving)
		}
		s.mu.Lock()
		for h := range s.held {
			if epoch, taken := s.fleet.epochOf(h.of.id); taken || epoch > h.of.epoch {
				h.end(&session.Refusal{Code: refusedSuperseded, Text: superseded(h.of.id, h.of.epoch, epoch)})
			}
			if key != last {
				h.notify()
			}
		}
		s.mu.Unlock()
		last = key
	}
	return nil
}

func superseded(id string, epoch, later uint64) string {
	return fmt.Sprintf("worker %s of epoch %d: a later life of it, of epoch %d, is in the fleet: stop one of the two, or give each an --id of its own", id, epoch, later)
}

// known are the relays of a snapshot.
type known struct {
	of  *membership.Snapshot
	all []membership.Member
}

// relays returns the relays of a snapshot. Each session asks for them every few seconds, and there are
// some hundred relays among tens of thousands of members.
func (s *Server) relays(of *membership.Snapshot) []membership.Member {
	last := s.known.Load()
	if last == nil || last.of != of {
		last = &known{of, of.WithRole(identity.RoleRelay)}
		s.known.Store(last)
	}
	return last.all
}

// Close ends all sessions and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for h := range s.held {
		_ = h.conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Divert takes over the connection of a session, and reports whether it is one.
func (s *Server) Divert(conn *tls.Conn) bool {
	if conn.ConnectionState().NegotiatedProtocol != session.Protocol {
		return false
	}
	s.Go(conn, conn)
	return true
}

// Handler takes the sessions of attached workers in clear text out of the requests of the peer
// listener. With certificates a session begins in the handshake, and a worker sends no request here.
// With a gossip key and no certificate only holders of the key may offer services. A session in clear
// text shows no key, so then only this host may begin one.
func (s *Server) Handler(next http.Handler) http.Handler {
	if s.fleet.cfg.Identity != nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != session.Path || req.Header.Get(wire.HopHeader) != "" {
			next.ServeHTTP(w, req)
			return
		}
		from, err := netip.ParseAddrPort(req.RemoteAddr)
		if s.fleet.cfg.Keyring != nil && (err != nil || !from.Addr().IsLoopback()) {
			http.Error(w, "this cluster has a gossip key, and a session in clear text shows none: give relays and workers certificates", http.StatusForbidden)
			return
		}
		if req.Header.Get("Upgrade") != session.Protocol {
			w.Header().Set("Upgrade", session.Protocol)
			w.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + session.Protocol + "\r\n\r\n"
		if _, err := conn.Write([]byte(answer)); err != nil {
			_ = conn.Close()
			return
		}
		s.Go(conn, buffered)
	})
}

// Go serves one session in the background. Reader has the bytes of conn that are already read.
func (s *Server) Go(conn net.Conn, reader io.Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return
	}
	s.running.Go(func() {
		defer func() { _ = conn.Close() }()
		s.serve(conn, bufio.NewReaderSize(reader, 512))
	})
}

// reject ends a session that has hardly begun.
func (s *Server) reject(conn net.Conn, why *session.Refusal) {
	s.refused.WithLabelValues(why.Code).Inc()
	if s.lines.Allow() {
		s.cfg.Logger.Warn("session of a worker refused", "addr", conn.RemoteAddr().String(), "reason", why.Code, "err", why.Text)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(session.AppendFrame(nil, session.KindRefused, why.Encode()))
}

func refusal(code, format string, args ...any) *session.Refusal {
	return &session.Refusal{Code: code, Text: fmt.Sprintf(format, args...)}
}

// serve holds a session from its hello to its end.
func (s *Server) serve(conn net.Conn, reader *bufio.Reader) {
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	h, why := s.greet(conn, reader)
	if why != nil {
		s.reject(conn, why)
		return
	}
	if why := s.enter(h); why != nil {
		s.reject(conn, why)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	left := false
	defer func() {
		s.leave(h, left)
		cancel()
	}()
	wrote := make(chan struct{})
	s.running.Go(func() {
		defer close(wrote)
		s.write(ctx, h)
		_ = conn.Close()
	})
	var err error
	left, err = s.read(ctx, h, reader)
	if why, ok := errors.AsType[*session.Refusal](err); ok {
		h.end(why) // the writer reports the reason and closes
		<-wrote
		s.refused.WithLabelValues(why.Code).Inc()
		if s.lines.Allow() {
			s.cfg.Logger.Warn("session of a worker ended", "worker", h.of.id, "addr", conn.RemoteAddr().String(), "reason", why.Code, "err", why.Text)
		}
	}
}

// greet reads the hello and decides whether the worker has the identity that it states.
func (s *Server) greet(conn net.Conn, reader *bufio.Reader) (*held, *session.Refusal) {
	kind, payload, err := session.ReadFrame(reader, session.MaxHello)
	if err != nil {
		code := refusedMalformed
		if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
			code = refusedTimeout
		}
		return nil, refusal(code, "no hello: %v", err)
	}
	hello, err := session.DecodeHello(payload)
	cfg := s.fleet.cfg
	switch {
	case kind != session.KindHello || err != nil:
		return nil, refusal(refusedMalformed, "no hello: frame %d, %v", kind, err)
	case hello.Cluster != cfg.Cluster:
		return nil, refusal(refusedCluster, "cluster mismatch: ours %q, theirs %q: give both the same --cluster, or correct --attach", cfg.Cluster, hello.Cluster)
	case hello.Environment != cfg.Environment:
		return nil, refusal(refusedCluster, "environment mismatch: ours %q, theirs %q: give both the same --environment, or correct --attach", cfg.Environment, hello.Environment)
	case hello.Epoch > uint64(time.Now().Add(futureEpoch).UnixMilli()):
		return nil, refusal(refusedEpoch, "worker %s started at %s, which is more than %v ahead of this relay's clock: compare the clocks of both hosts, set the wrong one, then restart the worker",
			hello.ID, time.UnixMilli(int64(min(hello.Epoch, 1<<50))).UTC().Format(time.RFC3339), futureEpoch)
	}
	h := &held{conn: conn, fresh: make(chan struct{}, 1), of: listed{
		instance: instance{hello.ID, hello.Epoch}, datacenter: hello.Datacenter, region: hello.Region, version: hello.Version,
	}}
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return nil, refusal(refusedIdentity, "the address %s is no IP address", conn.RemoteAddr())
	}
	h.of.host = from.Addr().Unmap().WithZone("")
	h.source = handshake.SourceOf(h.of.host)
	if cfg.Identity != nil {
		secured, ok := conn.(*tls.Conn)
		if !ok {
			return nil, refusal(refusedIdentity, "this relay takes sessions over TLS only")
		}
		var chain [][]byte
		for _, c := range secured.ConnectionState().PeerCertificates {
			chain = append(chain, c.Raw)
		}
		if h.of.key, err = s.fleet.learn(hello.ID, chain); err != nil {
			return nil, refusal(refusedIdentity, "worker %q: %v: give it a certificate for its --id and the role worker", hello.ID, err)
		}
		claims, err := cfg.Identity.PeerClaims(secured.ConnectionState())
		if err != nil || claims.Datacenter != "" && hello.Datacenter != "" && claims.Datacenter != hello.Datacenter {
			return nil, refusal(refusedIdentity, "worker %q in datacenter %q: its certificate is of %s", hello.ID, hello.Datacenter, claims)
		}
	}
	return h, nil
}

var _ advertise.Gossip = (*Fleet)(nil)

var _ advertise.Gossip = (*session.Client)(nil)
