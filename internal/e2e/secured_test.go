//go:build unix

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// TestASecuredFleetKeepsItsPromises takes one fleet with certificates and gossip
// keys, in which one relay of three serves each service, through its life.
func TestASecuredFleetKeepsItsPromises(t *testing.T) {
	t.Parallel()
	const workers = 3
	f := startFleet(t, fleetConfig{Relays: 3, Workers: workers, Secure: true,
		RelayArgs: servedBy("r2", 3, echo, rpc),
		Services:  func(int) []string { return []string{echo, rpc + ";protocol=h2c"} }})
	affine, forwarding := f.roles(t, echo, workers)
	_, rpcForwarding := f.roles(t, rpc, workers)

	t.Run("while nothing changes", func(t *testing.T) {
		for _, r := range forwarding {
			t.Run(r.ID+" forwards requests and names who did what", func(t *testing.T) {
				t.Parallel()
				f.forwards(t, r, affine)
			})
			t.Run(r.ID+" forwards server-sent events as they are sent", parallel(f.eventsPass(r, echo)))
			t.Run(r.ID+" forwards chunked bodies and trailers", parallel(f.trailersPass(r, echo)))
			t.Run(r.ID+" forwards large bodies", parallel(f.largeBodiesPass(r, echo)))
			t.Run(r.ID+" forwards a WebSocket", parallel(f.webSocketPasses(r, echo)))
			t.Run(r.ID+" forwards a WebSocket over HTTP/2", parallel(f.webSocketPassesOverHTTP2(r, echo)))
		}
		for _, pass := range []func(*relay, string) func(*testing.T){f.webSocketPasses, f.webSocketPassesOverHTTP2} {
			t.Run(affine.ID+" carries a WebSocket through a sidecar", parallel(pass(affine, echo)))
		}
		for _, r := range rpcForwarding {
			t.Run(r.ID+" forwards gRPC, unary and streaming", parallel(f.grpcPasses(r, rpc)))
		}
		t.Run("a worker of another cluster is refused and told why", parallel(f.foreignWorkerIsRefused))
		t.Run("a certificate of another holder is an error at the start", parallel(f.wrongCertificateIsAnError))
	})
	t.Run("the peer listener admits relays of this cluster only", f.peerListenerAdmitsRelaysOnly(affine))
	t.Run("a renewed certificate is taken without a restart", f.renewedCertificateIsTaken(affine))
	t.Run("a broken certificate file changes nothing", f.brokenCertificateChangesNothing(forwarding[0]))
	t.Run("commands about keys explain what they cannot do", f.keyCommandsExplain)
	t.Run("keys rotate under load, and who was away catches up", f.keysRotate(forwarding[1]))
}

// asRelay sends a request to the peer listener of a relay, as another relay does
// that forwards.
func (f *fleet) asRelay(t *testing.T, to *relay, what request) answer {
	t.Helper()
	what.addr = to.Peer
	req, err := what.http(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Ringway-Hop", "r9")
	client := f.client
	if f.Security != nil {
		other := f.relays[slices.IndexFunc(f.relays, func(r *relay) bool { return r != to })]
		client = clientOf(t, &http.Transport{TLSClientConfig: f.Security.TLSConfig(t, other.ID, "h2", "http/1.1"), ForceAttemptHTTP2: true})
		req.URL.Scheme = "https"
	}
	resp, err := client.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

func (f *fleet) peerListenerAdmitsRelaysOnly(r *relay) func(*testing.T) {
	return func(t *testing.T) {
		s := f.Security
		for _, err := range []error{
			s.Authority("other-ca"),
			s.Certificate(claims{Role: "relay", Node: "r2"}, "other-ca", "untrusted"),
			s.Certificate(claims{Role: "relay", Node: "r2", Cluster: "other"}, "ca", "elsewhere"),
			s.Certificate(claims{Role: "client", Node: "c1"}, "ca", "client"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct{ name, prefix, reason string }{
			{"no certificate", "", "no_certificate"},
			{"a worker's certificate", "w1", "role"},
			{"a client's certificate", "client", "role"},
			{"a certificate of another authority", "untrusted", "unknown_authority"},
			{"a certificate of another cluster", "elsewhere", "cluster"},
		} {
			t.Run(c.name, func(t *testing.T) {
				counter := fmt.Sprintf(`ringway_identity_refusals_total{direction="inbound",reason=%q}`, c.reason)
				before := f.metric(t, r, counter)
				// In TLS 1.3 a client learns of its refusal at its first read.
				conn, err := tls.Dial("tcp", r.Peer, s.TLSConfig(t, c.prefix, "http/1.1"))
				if err == nil {
					_ = conn.SetDeadline(time.Now().Add(patience))
					_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n%s: %s\r\nX-Request-Id: intruder\r\nRingway-Hop: r2\r\n\r\n", serviceHeader, echo)
					var n int
					if n, err = conn.Read(make([]byte, 512)); n > 0 {
						t.Errorf("%d bytes were answered", n)
					}
					_ = conn.Close()
				}
				if err == nil || !strings.Contains(err.Error(), "tls: ") && !strings.Contains(err.Error(), "reset") {
					t.Errorf("refused with %v, want a TLS alert", err)
				}
				procs.Await(t, "the refusal is counted", func() bool { return f.metric(t, r, counter) >= before+1 })
			})
		}
		t.Run("plain HTTP", func(t *testing.T) {
			a := f.client.send(request{addr: r.Peer, path: "/", service: echo, id: "intruder"})
			if a.err == nil && a.status != http.StatusBadRequest {
				t.Errorf("%v", a)
			}
		})
		for id := range f.executed(t) {
			if strings.HasSuffix(id, " intruder") {
				t.Errorf("%s was executed", id)
			}
		}
		t.Run("another relay is admitted", func(t *testing.T) {
			if a := f.asRelay(t, r, request{path: "/", service: echo}); a.status != 200 {
				t.Errorf("%v", a)
			}
		})
		for _, through := range f.relays {
			if a := f.call(through, echo); a.status != 200 {
				t.Errorf("after the refusals: %v", a)
			}
		}
	}
}

func (f *fleet) wrongCertificateIsAnError(t *testing.T) {
	s := f.Security
	if err := s.Certificate(claims{Role: "worker", Node: "w9", Cluster: "other"}, "ca", "w9-elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := s.Issue(claims{Role: "worker", Node: "w9"}); err != nil {
		t.Fatal(err)
	}
	other := newSecurity(t, t.TempDir())
	for _, c := range []struct {
		name, holder string
		more         []string
		want         []string
	}{
		{name: "another node", holder: "w1", want: []string{`id is "w9"`, `the certificate has "w1"`}},
		{name: "another cluster", holder: "w9-elsewhere", want: []string{`cluster is "e2e"`, `the certificate has "other"`}},
		{name: "another role", holder: "r1", want: []string{`role is "worker"`, `the certificate has "relay"`}},
		{name: "an authority that did not issue it", holder: "w9", more: []string{"--tls-ca", other.Path("ca/ca.crt")}, want: []string{"w9.crt", "ca.crt"}},
		{name: "no such file", holder: "absent", want: []string{"absent.crt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, processConfig{Name: "w9", Binary: "worker", Args: slices.Concat([]string{
				"run", "--cluster", cluster, "--environment", environment, "--id", "w9", "--log-format", "json",
				"--gossip-addr", freeAddr(t), "--admin-addr", freeAddr(t), "--service", "echo=127.0.0.1:1"},
				f.Join(), s.Flags("w9", c.holder), c.more)})
			checkRefusal(t, p, append(c.want, "\nworker: ")...)
			for _, r := range f.relays {
				if slices.Contains(f.IDs(r.Member), "w9") {
					t.Errorf("%s sees it", r.ID)
				}
			}
		})
	}
}

// shown is the serial number of the certificate that a TLS listener shows.
func (f *fleet) shown(t *testing.T, addr, protocol string) string {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", addr, f.Security.TLSConfig(t, f.relays[1].ID, protocol))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func (f *fleet) renewedCertificateIsTaken(r *relay) func(*testing.T) {
	return func(t *testing.T) {
		s := f.Security
		old := s.Serial(t, r.ID)
		if got := f.shown(t, r.Peer, "h2"); got != old {
			t.Fatalf("the peer listener shows %s, the file has %s", got, old)
		}
		if err := s.Certificate(claims{Role: "relay", Node: r.ID}, "ca", "renewed"); err != nil {
			t.Fatal(err)
		}
		renewed := s.Serial(t, "renewed")
		load := f.startLoad(t, loadConfig{Name: "renewed", Service: echo, Relay: func(n int) *relay { return f.relays[n%len(f.relays)] }})
		load.more(t, 50)
		members := f.IDs(r.Member)
		for _, ext := range []string{".key", ".crt"} { // one after the other, as an operator's script does
			if err := os.Rename(s.Path("renewed"+ext), s.Path(r.ID+ext)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for _, l := range []struct{ addr, protocol string }{{r.Peer, "h2"}, {r.Gossip, "probe/1"}} {
			procs.Await(t, l.addr+" shows the new certificate", func() bool { return f.shown(t, l.addr, l.protocol) == renewed })
		}
		t.Logf("new handshakes used it after %v", time.Since(began).Round(10*time.Millisecond))
		load.more(t, 100)
		if a := f.asRelay(t, r, request{path: "/", service: echo}); a.status != 200 {
			t.Errorf("over a new connection: %v", a)
		}
		results := load.stop()
		noneFailed(t, results)
		f.judge(t, results)
		if n := f.metric(t, r, `ringway_identity_reloads_total{result="replaced"}`); n != 1 {
			t.Errorf("%v reloads", n)
		}
		for _, other := range f.relays {
			if got := f.IDs(other.Member); !slices.Equal(got, members) {
				t.Errorf("%s sees %v, before it was %v", other.ID, got, members)
			}
			if memberFailed(other, r.ID) {
				t.Errorf("%s took %s for failed", other.ID, r.ID)
			}
		}
	}
}

func (f *fleet) brokenCertificateChangesNothing(r *relay) func(*testing.T) {
	return func(t *testing.T) {
		s := f.Security
		old, file := f.shown(t, r.Peer, "h2"), s.Path(r.ID+".crt")
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		foreign := claims{Role: "relay", Node: r.ID, Cluster: "other"}
		if err := s.Certificate(foreign, "ca", "broken"); err != nil {
			t.Fatal(err)
		}
		another, err := os.ReadFile(s.Path("broken.crt"))
		if err != nil {
			t.Fatal(err)
		}
		for n, text := range [][]byte{whole[:len(whole)/2], another} {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			procs.Await(t, "the failure is counted", func() bool {
				return f.metric(t, r, `ringway_identity_reloads_total{result="failed"}`) >= float64(n+1)
			})
			if got := f.shown(t, r.Peer, "h2"); got != old {
				t.Errorf("it shows %s, before it was %s", got, old)
			}
		}
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			t.Fatal(err)
		}
		if !r.Logged("certificates not replaced", "") {
			t.Error("the log does not tell")
		}
		if a := f.call(r, echo); a.status != 200 {
			t.Errorf("%v", a)
		}
	}
}

// memberKeys is what `keys list -o json` reports about one member.
type memberKeys struct {
	Member       string
	Fingerprints []string
	Error        string
}

// keys asks a relay for the keys of the fleet.
func (f *fleet) keys(t *testing.T, r *relay) []memberKeys {
	t.Helper()
	var listed struct{ Members []memberKeys }
	got := ringway(t, "keys", "list", "--admin-addr", r.Admin, "-o", "json")
	if err := json.Unmarshal([]byte(got.Stdout), &listed); err != nil || got.Code != 0 {
		t.Fatalf("%v\n%v", err, got)
	}
	return listed.Members
}

func (f *fleet) keyCommandsExplain(t *testing.T) {
	r, s := f.relays[0], f.Security
	inUse := f.keys(t, r)[0].Fingerprints[0]
	if err := os.WriteFile(s.Path("no.key"), []byte("not a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"remove the key in use", []string{"remove", inUse}, []string{"in use", "use another one first"}},
		{"use a key that no member has", []string{"use", "0badc0de"}, []string{"0badc0de", "not in use yet", "w1", "install it"}},
		{"install what is no key", []string{"install", s.Path("no.key")}, []string{"no.key", "gossip key", "relay keys generate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			refusedCommand(t, c.want, append([]string{"keys", "--admin-addr", r.Admin}, c.args...)...)
		})
	}
	t.Run("a worker's admin address", func(t *testing.T) {
		t.Parallel()
		refusedCommand(t, []string{"is this the admin address of a relay?"}, "keys", "list", "--admin-addr", f.workers[0].Admin)
	})
}

// keysRotate stops a relay and a worker, rotates, and starts them again as they
// were.
func (f *fleet) keysRotate(away *relay) func(*testing.T) {
	return func(t *testing.T) {
		s, worker := f.Security, f.workers[2]
		away.Signal(t, syscall.SIGTERM)
		worker.Signal(t, syscall.SIGTERM)
		if a, b := away.Exit(t), worker.Exit(t); a != 0 || b != 0 {
			t.Errorf("exit codes %d and %d", a, b)
		}
		procs.Await(t, "both are gone", func() bool { return f.sees(away.ID, false) && f.sees(worker.ID, false) })
		there := slices.DeleteFunc(slices.Clone(f.relays), func(r *relay) bool { return r == away })
		through := there[0]
		f.roles(t, echo, len(f.workers)-1)

		load := f.startLoad(t, loadConfig{Name: "rotated", Service: echo, Relay: func(n int) *relay { return there[n%len(there)] }})
		load.more(t, 50)
		key, err := s.Generate("new.key")
		if err != nil {
			t.Fatal(err)
		}
		old := f.keys(t, through)[0].Fingerprints[0]
		step := func(args ...string) {
			t.Helper()
			if r := ringway(t, append([]string{"keys", "--admin-addr", through.Admin}, args...)...); r.Code != 0 {
				t.Fatalf("%v", r)
			}
			load.more(t, 50)
		}
		step("install", s.Path("new.key"))
		installed := f.keys(t, through)[0].Fingerprints
		if len(installed) != 2 || installed[0] != old {
			t.Fatalf("after the installation: %v", installed)
		}
		step("use", installed[1])
		step("remove", old)
		f.allUse(t, there, installed[1:])
		for _, id := range []string{"r1", "r2", "r3", "w1", "w2", "w3"} {
			if got := keyFile(t, s, id); id != away.ID && id != worker.ID && !slices.Equal(got, []string{key}) {
				t.Errorf("the key file of %s does not hold the new key alone", id)
			}
		}

		// As they were: with the key that is no longer used.
		away.Process = start(t, away.Config)
		worker.Process = start(t, worker.Config)
		procs.Await(t, "both are members again", func() bool { return f.agrees(len(f.relays) + len(f.workers)) })
		load.more(t, 50)
		results := load.stop()
		noneFailed(t, results)
		f.judge(t, results)
		f.allUse(t, f.relays, installed[1:])
		for _, id := range []string{away.ID, worker.ID} {
			if got := keyFile(t, s, id); len(got) == 0 || got[0] != key {
				t.Errorf("the key file of %s does not have the new key first", id)
			}
		}
		f.roles(t, echo, len(f.workers))
		for _, r := range f.relays {
			if a := f.call(r, echo); a.status != 200 {
				t.Errorf("%v", a)
			}
		}
	}
}

// allUse checks, asking each of the relays, that all their members use the key.
// Members that were never away have no other.
func (f *fleet) allUse(t *testing.T, relays []*relay, want []string) {
	t.Helper()
	for _, r := range relays {
		listed := f.keys(t, r)
		if n := len(f.IDs(r.Member)); len(listed) != n {
			t.Errorf("%s lists %d of %d members", r.ID, len(listed), n)
		}
		for _, m := range listed {
			if m.Error != "" || len(m.Fingerprints) == 0 || m.Fingerprints[0] != want[0] {
				t.Errorf("%s: %+v, want %v", r.ID, m, want)
			}
		}
	}
}

// keyFile returns the keys in the file of a member.
func keyFile(t *testing.T, s *security, id string) (keys []string) {
	t.Helper()
	text, err := os.ReadFile(s.Path(id + ".keys"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	return keys
}

// refusedCommand runs a command that must fail, with these words.
func refusedCommand(t *testing.T, want []string, args ...string) {
	t.Helper()
	r := ringway(t, args...)
	t.Logf("%v", r)
	if r.Code != 1 || !strings.HasPrefix(r.Stderr, "relay: ") {
		t.Errorf("exit code %d, want 1 and a message of relay", r.Code)
	}
	containsAll(t, r.Stdout+r.Stderr, want)
}

func containsAll(t *testing.T, text string, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}
