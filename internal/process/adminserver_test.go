package process_test

import (
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership/identity"
)

// TestAnAdminAddressThatOthersReachAsksWhoTheyAre starts with what others can reach.
func TestAnAdminAddressThatOthersReachAsksWhoTheyAre(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		want    string // a part of the error; empty: it starts
	}{
		{"on loopback", []string{"RINGWAY_ADMIN_ADDR=127.0.0.1:7430"}, ""},
		{"on loopback of another name", []string{"RINGWAY_ADMIN_ADDR=localhost:7430"}, ""},
		{"on loopback of IPv6", []string{"RINGWAY_ADMIN_ADDR=[::1]:7430"}, ""},
		{"on a unix socket", []string{"RINGWAY_ADMIN_ADDR=unix:/run/ringway/relay.sock"}, ""},
		{"on a unix socket somewhere", []string{"RINGWAY_ADMIN_ADDR=unix:relay.sock"}, "absolute path"},
		{"on a unix socket without a path", []string{"RINGWAY_ADMIN_ADDR=unix:"}, "absolute path"},
		{"on a name, which may be any address", []string{"RINGWAY_ADMIN_ADDR=relay-1.shop.internal:7430"}, "--admin-token-file FILE"},
		{"asked for by an address", []string{"RINGWAY_ADMIN_HOST=relay-1:7430"}, "--admin-host"},
		{"on every interface", []string{"RINGWAY_ADMIN_ADDR=:7430"}, "--admin-token-file FILE"},
		{"on an address of the host", []string{"RINGWAY_ADMIN_ADDR=10.0.0.1:7430"}, "--admin-addr"},
		{"with certificates for gossip alone", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_TLS_CERT=c", "RINGWAY_TLS_KEY=k", "RINGWAY_TLS_CA=a", "RINGWAY_GOSSIP_KEY_FILE=g"}, "--admin-tls"},
		{"with a token", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_ADMIN_TOKEN_FILE=/token"}, ""},
		{"with TLS", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_ADMIN_TLS=true", "RINGWAY_TLS_CERT=c", "RINGWAY_TLS_KEY=k", "RINGWAY_TLS_CA=a"}, ""},
		{"with TLS and no certificate", []string{"RINGWAY_ADMIN_TLS=true"}, "--tls-cert"},
		{"said out loud", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_INSECURE=true"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := process.DefaultSettings(identity.RoleRelay)
			set := settings.New("relay", "RINGWAY")
			s.Declare(set)
			err := set.Load(settings.Sources{Environ: append(c.environ, "RINGWAY_CLUSTER=c", "RINGWAY_ENVIRONMENT=e")})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
			if got := s.Admin(); got.TokenFile != s.AdminTokenFile || got.TLS != s.AdminTLS || len(got.Operators) != 1 || got.Pprof {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTheAdminAPIIsAskedForByTheNamesOfTheSettings(t *testing.T) {
	for _, c := range []struct {
		addr  string
		names []string
		host  string
		want  int
	}{
		{"127.0.0.1:7430", nil, "relay-1.shop.internal:7430", 421},
		{"127.0.0.1:7430", []string{"relay-1.shop.internal"}, "relay-1.shop.internal:7430", 200},
		{"127.0.0.1:7430", []string{"relay-1.shop.internal"}, "relay-2.shop.internal:7430", 421},
		{"relay-1.shop.internal:7430", nil, "relay-1.shop.internal:7430", 200},
		{"unix:/run/ringway/relay.sock", nil, "localhost", 200},
		{"unix:/run/ringway/relay.sock", nil, "unix", 421},
		{":7430", nil, ":7430", 421},
	} {
		s := process.DefaultSettings(identity.RoleRelay)
		s.AdminAddr, s.AdminHosts = c.addr, c.names
		mux, server := http.NewServeMux(), &http.Server{}
		mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
		if err := s.Admin().Serve(server, mux, process.AccessConfig{}); err != nil {
			t.Fatal(err)
		}
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Host = c.host
		server.Handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s with --admin-host %v, asked for %s: %d, want %d", c.addr, c.names, c.host, w.Code, c.want)
		}
	}
}

// A load balancer whose check opens a connection and closes it does so every few seconds.
func TestAConnectionToTheAdminAPIWithoutAHandshakeIsALineOnlyAtDebug(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	own, err := authority.Source(identity.Claims{Role: identity.RoleWorker, Node: "w1", Cluster: "shop", Environment: "prod"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var unlevelled, levelled logtest.Log
	defer log.SetOutput(log.Writer())
	log.SetOutput(&unlevelled) // as the daemons do with standard error
	const calls = 20
	var ended sync.WaitGroup
	ended.Add(calls)
	server := &http.Server{ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			ended.Done()
		}
	}}
	logger := slog.New(slog.NewTextHandler(&levelled, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := (process.AdminConfig{TLS: true}).Serve(server, http.NewServeMux(), process.AccessConfig{Identity: own, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	socket := procs.Listen(t)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(socket, "", "") }()
	for range calls {
		_ = procs.Dial(t, socket.Addr().String()).Close()
	}
	ended.Wait()
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if unlevelled.String() != "" || levelled.Lines("level=DEBUG") != calls || levelled.Lines("") != calls {
		t.Errorf("without a level:\n%swith one:\n%s", unlevelled.String(), levelled.String())
	}
}

func TestAPanicOfTheAdminAPIIsAnErrorInTheLog(t *testing.T) {
	for protocol, start := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"HTTP/2":   func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		var lines logtest.Log
		mux, server := http.NewServeMux(), httptest.NewUnstartedServer(nil)
		mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) { panic("of a test") })
		if err := (process.AdminConfig{}).Serve(server.Config, mux, process.AccessConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))}); err != nil {
			t.Fatal(err)
		}
		start(server)
		if answer, err := server.Client().Get(server.URL); err == nil {
			_ = answer.Body.Close()
			t.Error(protocol, answer.Status)
		}
		// Over HTTP/2 the client gets the reset first.
		procs.Await(t, "an error in the log over "+protocol, func() bool { return lines.Lines("level=ERROR") == 1 && lines.Lines("of a test") == 1 })
		server.Close()
	}
}
