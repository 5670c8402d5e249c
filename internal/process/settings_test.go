package process_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// load reads the shared settings from flags, on top of the two that are required.
func load(t *testing.T, args ...string) (*process.Settings, error) {
	t.Helper()
	s := process.DefaultSettings(identity.RoleRelay)
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	set.BindFlags(flags)
	if err := flags.Parse(append([]string{"--cluster=shop", "--environment=dev"}, args...)); err != nil {
		t.Fatal(err)
	}
	return &s, set.Load(settings.Sources{})
}

func TestOnLoopbackNothingNeedsSecuring(t *testing.T) {
	s, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Membership(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if cfg.ID != host+"-relay" || cfg.BindAddr != "127.0.0.1:7400" || cfg.Role != identity.RoleRelay || cfg.Identity != nil || cfg.Keyring != nil {
		t.Errorf("%+v", cfg)
	}
}

func TestAnAddressThatOthersReachIsProtectedOrTheOperatorAllowsIt(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
	for file, text := range map[string]string{good: "node w-7\n", bad: "node w-7\nw-8\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string // in the error; "" for none
	}{
		{[]string{"--gossip-addr=10.0.0.1:7400"}, "nothing protects it"},
		{[]string{"--gossip-addr=10.0.0.1:7400", "--insecure"}, ""},
		{[]string{"--gossip-addr=10.0.0.1:7400", "--tls-cert=c", "--tls-key=k", "--tls-ca=a"}, "nothing protects it"},
		{[]string{"--gossip-addr=10.0.0.1:7400", "--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--gossip-key-file=g"}, ""},
		{[]string{"--gossip-addr=[::1]:7400"}, ""},
		{[]string{"--gossip-addr=localhost:7400"}, ""},
		{[]string{"--gossip-addr=:7400", "--insecure"}, ""},
		{[]string{"--gossip-addr=:0", "--insecure"}, "the other members need an address"},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=10.0.0.1"}, ""},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=relay-1.example"}, ""},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=relay-1.example:7500"}, ""},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=a b"}, "neither an address nor a name"},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=dns+relay-1.example"}, "it is a seed"},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=10.0.0.1:0"}, "no other host can reach this address"},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=10.0.0.1:7400"}, ""},
		{[]string{"--gossip-addr=:7400", "--insecure", "--advertise-addr=0.0.0.0:7400"}, "no other host can reach this address"},
		{[]string{"--gossip-addr=relay.example:7400"}, "a name could mean several addresses"},
		{[]string{"--join=:1"}, `--join ":1"`},
		{[]string{"--join=srv+_gossip._udp.shop.example,dns+relays.shop.example:7400,10.0.0.1"}, ""},
		{[]string{"--dns-allowed-cidr=10.0.0.0"}, "a network such as 10.0.0.0/8"},
		{[]string{"--dns-timeout=0s"}, "more than 0"},
		{[]string{"--tls-cert=c"}, "--tls-cert, --tls-key and --tls-ca go together"},
		{[]string{"--tls-deny-file=" + good}, "without certificates there are none to deny"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--tls-deny-file=" + good}, ""},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--tls-deny-file=" + bad}, "line 2: "},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--tls-deny-file=" + good + ".none"}, "correct the path"},
		{[]string{"--identity-template=spiffe://shop.test/{environment}/{cluster}/{role}/{node}"}, "without certificates there are no names to read"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--identity-template=spiffe://shop.test/{environment}/{cluster}/{role}/{node}"}, ""},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--identity-template=spiffe://shop.test/{cluster}/{role}/{node}"}, "{environment} is missing"},
	} {
		_, err := load(t, c.args...)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestCertificateAndKeysAreReadFromTheirFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(identity.Claims{Role: identity.RoleRelay, Cluster: "shop", Environment: "dev", Node: "r1"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s, err := load(t, "--id=r1", "--tls-cert="+write("r1.crt", cert), "--tls-key="+write("r1.key", key), "--tls-ca="+write("ca.crt", authority.CertificatePEM()),
		"--tls-deny-file="+write("denied", []byte("node r1\n")),
		"--gossip-key-file="+write("gossip", []byte(membership.GenerateKey())))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Membership(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Identity == nil || cfg.Identity.Claims().Node != "r1" || len(cfg.Keyring.Fingerprints()) != 1 {
		t.Errorf("%+v", cfg)
	}
	if _, err := cfg.Identity.Certify(cfg.Identity.Chain()); err == nil {
		t.Error("the deny list is not in use")
	}
	s.GossipKeyFile = filepath.Join(dir, "none")
	if _, err := s.Membership(slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "relay keys generate") {
		t.Errorf("a missing key file: %v", err)
	}
}

// nameServer is a name server on loopback. answer fills the reply in and reports whether
// it is sent.
func nameServer(t *testing.T, answer func(reply *dns.Msg) (send bool)) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		if m := new(dns.Msg).SetReply(r); answer(m) {
			_ = w.WriteMsg(m) // a lost answer is the client's to bear
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ActivateAndServe()
	}()
	t.Cleanup(func() {
		_ = pc.Close()
		<-done
	})
	return pc.LocalAddr().String()
}

// withAddress answers a question for IPv4 addresses with 10.1.2.last.
func withAddress(m *dns.Msg, last byte) {
	if q := m.Question[0]; q.Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(10, 1, 2, last)}}
	}
}

// resolverOf is the resolver of a member with these settings.
func resolverOf(t *testing.T, args ...string) *discovery.Resolver {
	t.Helper()
	s, err := load(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Membership(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Resolver
}

func TestTheDNSTimeoutEndsAQuery(t *testing.T) {
	silent := nameServer(t, func(*dns.Msg) bool { return false })
	for _, timeout := range []string{"30ms", "60ms"} {
		_, err := resolverOf(t, "--dns-server="+silent, "--dns-timeout="+timeout).LookupHost(t.Context(), "relays.example.com", discovery.UseCache)
		if err == nil || !strings.Contains(err.Error(), "no answer within "+timeout) {
			t.Errorf("--dns-timeout %s: %v", timeout, err)
		}
	}
}

func TestAnAnswerWithoutATTLCountsForTheDNSCacheTTL(t *testing.T) {
	for _, c := range []struct {
		args       []string
		fresh, old time.Duration
	}{
		{nil, 29 * time.Second, 31 * time.Second},
		{[]string{"--dns-cache-ttl=10s"}, 9 * time.Second, 11 * time.Second},
		{[]string{"--dns-cache-ttl=2m"}, 119 * time.Second, 121 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := resolverOf(t, c.args...)
			for _, at := range []struct {
				pause  time.Duration
				misses uint64
			}{{0, 1}, {c.fresh, 1}, {c.old - c.fresh, 2}} {
				time.Sleep(at.pause)
				if _, err := r.LookupHost(t.Context(), "localhost", discovery.UseCache); err != nil { // never a question for DNS
					t.Fatal(err)
				}
				if got := r.Stats().Misses; got != at.misses {
					t.Errorf("%v: %d lookups past the cache, want %d", c.args, got, at.misses)
				}
			}
		})
	}
}

func TestAddressesThatChangeTooOftenAreRefusedIfConfigured(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		var asked atomic.Int64
		changing := nameServer(t, func(m *dns.Msg) bool {
			if m.Question[0].Qtype == dns.TypeA {
				withAddress(m, byte(asked.Add(1)))
			}
			return true
		})
		r := resolverOf(t, "--dns-server="+changing, fmt.Sprintf("--dns-reject-flux=%v", refuse))
		var last discovery.Result
		for range 10 { // more than 5 changes
			var err error
			if last, err = r.LookupHost(t.Context(), "relays.example.com", discovery.SkipCache); err != nil {
				t.Fatal(err)
			}
		}
		if last.Stale != refuse {
			t.Errorf("--dns-reject-flux=%v: after nine changes %+v", refuse, last)
		}
	}
}

func TestTheNameServerSettingsReachTheResolver(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		fails bool
		again int64 // questions of a second lookup
		want  string
	}{
		{"as it comes", nil, false, 0, "10.1.2.3"},
		{"outside the allowed network", []string{"--dns-allowed-cidr=192.168.0.0/16"}, false, 0, ""},
		{"inside it", []string{"--dns-allowed-cidr=10.0.0.0/8"}, false, 0, "10.1.2.3"},
		{"private for a public name", []string{"--dns-block-private-for-public"}, false, 0, ""},
		{"a failure is remembered", nil, true, 0, ""},
		{"but not for long", []string{"--negative-cache-ttl=1ns"}, true, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int64
			server := nameServer(t, func(m *dns.Msg) bool {
				asked.Add(1)
				m.Rcode = dns.RcodeServerFailure
				if !c.fails {
					m.Rcode = dns.RcodeSuccess
					withAddress(m, 3)
				}
				return true
			})
			r := resolverOf(t, append(c.args, "--dns-server="+server)...)
			result, err := r.LookupHost(t.Context(), "relays.example.com", discovery.UseCache)
			if got := fmt.Sprint(result.Addrs); c.want != "" && (err != nil || got != "["+c.want+"]") || c.want == "" && err == nil {
				t.Fatalf("%s, %v", got, err)
			}
			before := asked.Load()
			_, _ = r.LookupHost(t.Context(), "relays.example.com", discovery.UseCache)
			if got := asked.Load() - before; got != c.again {
				t.Errorf("the second lookup asked %d questions, want %d", got, c.again)
			}
		})
	}
}

func TestTheBannerReportsHowSecureTheMemberIs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "none; loopback only"},
		{[]string{"--gossip-addr=10.0.0.1:1", "--insecure"}, "NONE: --insecure"},
		{[]string{"--gossip-key-file=g"}, "gossip keys; no certificates"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a"}, "certificates; packets in clear text"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--gossip-key-file=g"}, "certificates and gossip keys"},
	} {
		s, err := load(t, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, row := range s.Banner() {
			if row.Key == "security" {
				got = row.Value.String()
			}
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestWhatIsBoundEverywhereIsReachedAtTheAdvertisedHost(t *testing.T) {
	bound := func(text string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct{ bound, advertised, want string }{
		{"0.0.0.0:7420", "10.0.0.1:7400", "10.0.0.1:7420"},
		{"[::]:7420", "[2001:db8::1]:7400", "[2001:db8::1]:7420"},
		{"127.0.0.1:7420", "10.0.0.1:7400", "127.0.0.1:7420"},
	} {
		if got := process.Reachable(bound(c.bound), c.advertised); got != c.want {
			t.Errorf("%s advertised as %s: %s, want %s", c.bound, c.advertised, got, c.want)
		}
	}
}

// TestNamesAndSeedsHaveDefaultsOnLoopbackOnly loads what a first try leaves out.
func TestNamesAndSeedsHaveDefaultsOnLoopbackOnly(t *testing.T) {
	const exposed = "0.0.0.0:7400"
	for name, c := range map[string]struct {
		role       identity.Role
		gossip     string
		gossipless bool
		names      string // of cluster and environment; empty: they are required
		join       []string
	}{
		"relay":                 {role: identity.RoleRelay, gossip: "127.0.0.1:7400", names: "local"},
		"worker":                {role: identity.RoleWorker, gossip: "127.0.0.1:7401", names: "local", join: []string{"127.0.0.1:7400"}},
		"localhost":             {role: identity.RoleWorker, gossip: "localhost:0", names: "local", join: []string{"127.0.0.1:7400"}},
		"another loopback":      {role: identity.RoleWorker, gossip: "127.0.0.9:7400", names: "local", join: []string{"127.0.0.1:7400"}},
		"IPv6":                  {role: identity.RoleWorker, gossip: "[::1]:7401", names: "local", join: []string{"[::1]:7400"}},
		"in the relay's place":  {role: identity.RoleWorker, gossip: "127.0.0.1:7400", names: "local"},
		"relay, every address":  {role: identity.RoleRelay, gossip: exposed},
		"worker, every address": {role: identity.RoleWorker, gossip: exposed},
		"worker, one address":   {role: identity.RoleWorker, gossip: "10.0.0.1:7401"},
		"an invalid address":    {role: identity.RoleWorker, gossip: "nowhere"},
		"attached worker":       {role: identity.RoleWorker, gossip: "127.0.0.1:7401", gossipless: true},
	} {
		s := process.DefaultSettings(c.role)
		s.Gossipless = func() bool { return c.gossipless }
		set := settings.New("member", "RINGWAY")
		s.Declare(set)
		err := set.Load(settings.Sources{Environ: []string{"RINGWAY_GOSSIP_ADDR=" + c.gossip, "RINGWAY_INSECURE=true"}})
		if c.names == "" {
			if err == nil || !strings.Contains(err.Error(), "--cluster: required; give --cluster") || !strings.Contains(err.Error(), "--environment: required") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || s.Cluster != c.names || s.Environment != c.names || !slices.Equal(s.Join, c.join) {
			t.Errorf("%s: %q, %q, %q, %v", name, s.Cluster, s.Environment, s.Join, err)
		}
	}

	s := process.DefaultSettings(identity.RoleWorker)
	set := settings.New("member", "RINGWAY")
	s.Declare(set)
	given := []string{"RINGWAY_CLUSTER=shop", "RINGWAY_ENVIRONMENT=dev", "RINGWAY_JOIN=127.0.0.1:1,127.0.0.1:2"}
	if err := set.Load(settings.Sources{Environ: given}); err != nil || s.Cluster != "shop" || s.Environment != "dev" || len(s.Join) != 2 {
		t.Errorf("what is given: %q, %q, %q, %v", s.Cluster, s.Environment, s.Join, err)
	}
	if err := set.Load(settings.Sources{}); err != nil || s.Cluster != "local" || len(s.Join) != 1 {
		t.Errorf("loaded again without: %q, %q, %v", s.Cluster, s.Join, err)
	}
}
