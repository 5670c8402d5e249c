package tcp

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

const patience = 30 * time.Second

// running is a server that runs until the end of the test.
type running struct {
	*Server
	addr     string
	registry *prometheus.Registry
	log      *logtest.Log
	ended    chan error
}

func start(t *testing.T, service string, handler http.HandlerFunc) *running {
	t.Helper()
	socket := procs.Listen(t)
	r := &running{addr: socket.Addr().String(), registry: prometheus.NewRegistry(), log: &logtest.Log{}, ended: make(chan error, 1)}
	r.Server = New(Config{Service: service, Handler: handler, Refused: NewRefused(r.registry), Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	go func() { r.ended <- r.Serve(socket) }()
	t.Cleanup(func() {
		_ = r.Close()
		if err := <-r.ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

func (r *running) dial(t *testing.T) net.Conn {
	t.Helper()
	conn := procs.Dial(t, r.addr)
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func TestTheHandlerGetsARequestForASession(t *testing.T) {
	requests := make(chan *http.Request, 1)
	s := start(t, "db", func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	})
	conn := s.dial(t)
	r := <-requests
	for name, want := range map[string]string{
		"Upgrade": wire.UpgradeTCP, "Connection": "Upgrade", wire.ServiceHeader: "db",
		wire.ConnectionHeader: conn.LocalAddr().String() + " " + conn.RemoteAddr().String(),
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.RemoteAddr != conn.LocalAddr().String() {
		t.Errorf("from %s", r.RemoteAddr)
	}
}

func TestAHandlerThatPanicsEndsOneSession(t *testing.T) {
	s := start(t, "db", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Read(make([]byte, 1))
		panic("a bug")
	})
	other := s.dial(t)
	conn := s.dial(t)
	_, _ = io.WriteString(conn, "x")
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	_ = other.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, errTimeout(err)) {
		t.Errorf("another session: %v", err)
	}
	procs.Await(t, "the log has the panic", func() bool { return s.log.Lines("a bug") > 0 }) // the reset may come before
	if log := s.log.String(); !strings.Contains(log, "server_test.go") {
		t.Errorf("the log: %s", log)
	}
}

// errTimeout returns err if it is a timeout.
func errTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return errors.New("a timeout")
}

func TestAShutdownEndsTheIntakeAndNoSession(t *testing.T) {
	s := start(t, "db", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	})
	conn := s.dial(t)
	echoes := func() error {
		_, _ = io.WriteString(conn, "x")
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	if err := echoes(); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("the address still accepts")
	}
	if err := echoes(); err != nil {
		t.Errorf("the session after the shutdown: %v", err)
	}
	_ = s.Close()
	if err := echoes(); err == nil {
		t.Error("the session outlives the close")
	}
}

func TestAShutdownEndsAConnectionThatHasSentNoClientHello(t *testing.T) {
	s := start(t, "", func(http.ResponseWriter, *http.Request) { t.Error("a session without a service") })
	conn := s.dial(t)
	for {
		s.mu.Lock()
		waits := len(s.waiting)
		s.mu.Unlock()
		if waits == 1 {
			break
		}
		time.Sleep(time.Millisecond) // polls a state
	}
	_ = s.Shutdown(t.Context())
	if _, err := conn.Read(make([]byte, 8)); err == nil {
		t.Error("the connection stays")
	}
}

func TestARefusalIsCountedByItsCode(t *testing.T) {
	s := start(t, "db", func(_ http.ResponseWriter, r *http.Request) {
		ingress.New(ingress.Config{Services: nothing{}, Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(nil, r)
	})
	conn, err := net.Dial("tcp", s.addr)
	if err == nil {
		_, err = io.ReadAll(conn)
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	if n := logtest.Series(t, s.registry, "ringway_relay_tcp_refused_total")["unknown_service"]; n != 1 {
		t.Errorf("%v are counted", n)
	}
}

// nothing has no services.
type nothing struct{}

func (nothing) Service(string) (*routing.Service, bool) { return nil, false }

func TestAShutdownEndsAConnectionThatHasNotNamedItsClient(t *testing.T) {
	reading := make(chan struct{})
	registry := prometheus.NewRegistry()
	s := New(Config{
		Service: "db", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a session begins") }),
		Prologue: func(conn net.Conn) (string, error) {
			close(reading)
			_, err := conn.Read(make([]byte, 1))
			return ProxyMissing, err
		},
		Refused: NewRefused(registry), Logger: slog.New(slog.DiscardHandler),
	})
	socket := procs.Listen(t)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(socket) }()
	procs.Dial(t, socket.Addr().String())
	<-reading
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if counts := logtest.Series(t, registry, "ringway_relay_tcp_refused_total"); counts["cancelled"] != 1 {
		t.Errorf("counted as %v, want cancelled", counts)
	}
}
