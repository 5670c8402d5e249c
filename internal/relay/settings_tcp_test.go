package relay

import (
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/procs"
)

func TestAddressesOfTCPSessionsAreReadOrRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []TCPListener
		err  string
	}{
		{nil, nil, ""},
		{[]string{"--tcp-ingress", "6379=cache"}, []TCPListener{{"127.0.0.1:6379", "cache"}}, ""},
		{[]string{"--tcp-ingress", ":6379=cache", "--tcp-ingress", "[::1]:5432=db", "--tls-passthrough", "10.0.0.1:443", "--domain", "shop.test"},
			[]TCPListener{{":6379", "cache"}, {"[::1]:5432", "db"}, {"10.0.0.1:443", ""}}, ""},
		{[]string{"--tls-passthrough", "443"}, nil, "no server name names a service"},
		{[]string{"--tls-passthrough", "443", "--domain", "shop.test"}, []TCPListener{{"127.0.0.1:443", ""}}, ""},
		{[]string{"--tcp-ingress", "0=a", "--tcp-ingress", "0=b"}, []TCPListener{{"127.0.0.1:0", "a"}, {"127.0.0.1:0", "b"}}, ""},
		{[]string{"--tcp-ingress", "6379"}, nil, "no name of a service"},
		{[]string{"--tcp-ingress", "6379=no/name"}, nil, "no name of a service"},
		{[]string{"--tcp-ingress", "cache=6379"}, nil, "not an address with a port"},
		{[]string{"--tcp-ingress", "70000=cache"}, nil, "not an address with a port"},
		{[]string{"--tls-passthrough", "10.0.0.1"}, nil, "not an address with a port"},
		{[]string{"--tcp-ingress", "6379=cache", "--tls-passthrough", "127.0.0.1:6379"}, nil, "a second listener"},
		{[]string{"--tcp-ingress", ":6379=cache", "--tcp-ingress", "6379=db"}, nil, "a second listener"},
		{[]string{"--tcp-ingress", "0.0.0.0:6379=cache", "--tls-passthrough", "[::]:6379"}, nil, "a second listener"},
		{[]string{"--tcp-ingress", "[::1]:6379=cache", "--tls-passthrough", "[0:0::1]:6379"}, nil, "a second listener"},
		{[]string{"--tcp-ingress", "[::1]:6379=cache", "--tls-passthrough", "6379", "--domain", "shop.test"}, []TCPListener{{"[::1]:6379", "cache"}, {"127.0.0.1:6379", ""}}, ""},
		{[]string{"--tcp-ingress", "6379=cache", "--peer-addr", "127.0.0.1:6379"}, nil, "which is for clients, can be bound"},
		{[]string{"--ingress-addr", ":7430", "--admin-addr", "127.0.0.1:7430"}, nil, "which is for clients, can be bound"},
		{[]string{"--tcp-ingress", "=cache"}, nil, "not an address with a port"},
		{[]string{"--tcp-ingress", "7410=cache"}, nil, "only one of it and the --ingress-addr"},
		{[]string{"--tls-passthrough", ":7410"}, nil, "only one of it and the --ingress-addr"},
		{[]string{"--tcp-ingress", "6379=cache", "--ingress-service", "web"}, nil, "may not reach this service"},
		{[]string{"--tcp-ingress", "6379=cache", "--ingress-service", "web", "--ingress-service", "cache"}, []TCPListener{{"127.0.0.1:6379", "cache"}}, ""},
	} {
		s, err := load(t, c.args...)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %q", c.args, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if got := s.TCP.listeners(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, want %+v", c.args, got, c.want)
		}
	}
}

func TestATCPAddressThatIsTakenIsAnErrorAtTheStartAndLeavesNothingBound(t *testing.T) {
	taken := procs.Listen(t)
	addr := procs.FreeAddr(t)
	s := DefaultSettings()
	s.Cluster, s.Environment, s.ID = "test", "ci", "r1"
	s.GossipAddr, s.IngressAddrs[0], s.PeerAddr, s.AdminAddr = anyPort, anyPort, anyPort, anyPort
	s.TCP.Ingress.Set(addr+"=a", taken.Addr().String()+"=b")
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := New(cfg); err == nil || !strings.Contains(err.Error(), "listen for tcp on "+taken.Addr().String()+" (--tcp-ingress)") {
		t.Errorf("%v, %v", r, err)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("an address stays bound: %v", err)
	}
	_ = again.Close()
	cfg.Registry = prometheus.NewRegistry()
	cfg.Membership.Registerer = cfg.Registry
	if err := Check(cfg); err != nil {
		t.Errorf("a configuration that another process uses is checked: %v", err)
	}
}
