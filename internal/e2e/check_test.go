//go:build unix

package e2e

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// checkReport is what `relay check -o json` writes.
type checkReport struct {
	Relay, Status string
	Findings      []checkFinding
}

type checkFinding struct{ Check, Status, Subject, Text, Remedy, Page string }

// troubles are the findings that are not ok.
func (r checkReport) troubles() []checkFinding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f checkFinding) bool { return f.Status == "ok" })
}

// check runs `relay check` against a relay.
func (f *fleet) check(t *testing.T, r *relay, args ...string) (checkReport, ran) {
	t.Helper()
	out := ringway(t, append([]string{"check", "--admin-addr", r.Admin, "-o", "json"}, args...)...)
	var report checkReport
	if out.Stdout != "" {
		if err := json.Unmarshal([]byte(out.Stdout), &report); err != nil {
			t.Fatalf("%v in %v", err, out)
		}
	}
	return report, out
}

// finds waits until a check of r has the expected finding, with exit code 1 and a
// remedy.
func (f *fleet) finds(t *testing.T, r *relay, want checkFinding) {
	t.Helper()
	var report checkReport
	var out ran
	await := time.Now().Add(2 * patience)
	for {
		report, out = f.check(t, r)
		for _, got := range report.Findings {
			if got.Check != want.Check || got.Status != want.Status || got.Subject != want.Subject || !strings.Contains(got.Text, want.Text) {
				continue
			}
			if out.Code != 1 {
				t.Errorf("exit code %d, want 1", out.Code)
			}
			if !strings.Contains(got.Remedy, want.Remedy) || got.Page != want.Page {
				t.Errorf("found %+v, want %+v", got, want)
			}
			return
		}
		if time.Now().After(await) {
			t.Fatalf("never found %+v; the last check:\n%v", want, out)
		}
		time.Sleep(100 * time.Millisecond) // between two checks of the state
	}
}

// wellOnly waits until a check finds nothing at all.
func (f *fleet) wellOnly(t *testing.T, r *relay) {
	t.Helper()
	var out ran
	var report checkReport
	deadline := time.Now().Add(2 * patience)
	for {
		if report, out = f.check(t, r, "--strict"); out.Code == 0 && len(report.Findings) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a fleet in which all is well: %v", out)
		}
		time.Sleep(100 * time.Millisecond) // between two checks of the state
	}
	if bad := report.troubles(); len(bad) > 0 || report.Status != "ok" {
		t.Fatalf("exit code 0 with %+v", bad)
	}
}

// enough is fewer requests at a time than a test machine has descriptors for.
var enough = []string{"--max-in-flight", "500"}

// TestCheckFindsNothingInASecuredFleetButACertificateThatEnds renews the certificate
// of one relay by one that was issued long ago and ends tonight.
func TestCheckFindsNothingInASecuredFleetButACertificateThatEnds(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Secure: true, RelayArgs: enough,
		Services: func(int) []string { return []string{echo} }})
	r1 := f.relay("r1")
	f.wellOnly(t, r1)

	out := ringway(t, "check", "--admin-addr", r1.Admin)
	if out.Code != 0 || strings.Contains(out.Stdout, "✗") || !strings.Contains(out.Stdout, "✓ certificates") || strings.Contains(out.Stdout, "\x1b") {
		t.Errorf("the table of a healthy fleet: %v", out)
	}

	endingTonight(t, f.Security, "r2")
	f.finds(t, r1, checkFinding{Check: "certificates", Status: "failed", Subject: "r2", Text: "the certificate of r2 ends in 1",
		Remedy: "relay tls cert create", Page: "docs/operations/certificates.md"})
	f.finds(t, f.relay("r2"), checkFinding{Check: "certificates", Status: "failed", Subject: "r2", Text: "the certificate of r2 ends in 1",
		Remedy: "relay tls cert create", Page: "docs/operations/certificates.md"})
}

// endingTonight replaces the certificate of a relay by one of 30 days of which half a
// day is left.
func endingTonight(t *testing.T, s *security, node string) {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(s.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const life = 30 * 24 * time.Hour
	issued := time.Now().Add(12*time.Hour - life)
	authority, err := identity.LoadAuthority(read("ca/ca.crt"), read("ca/ca.key"), func() time.Time { return issued })
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(identity.Claims{Role: identity.RoleRelay, Node: node, Cluster: cluster, Environment: environment}, life)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{node + ".crt": cert, node + ".key": key} {
		if err := os.WriteFile(s.Path(name+".new"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.Path(name+".new"), s.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckFindsWhatIsWrongWithTheFleet breaks one thing of a fleet after the other.
func TestCheckFindsWhatIsWrongWithTheFleet(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 2, RelayArgs: enough, Services: func(int) []string { return []string{echo} }})
	r1, r3 := f.relay("r1"), f.relay("r3")
	f.wellOnly(t, r1)

	t.Run("a relay with another minimum", func(t *testing.T) {
		odd := f.startRelay(t, "odd", "--min-peers-per-worker", "4")
		f.finds(t, r1, checkFinding{Check: "settings-agree", Status: "failed", Subject: "odd", Text: "--min-peers-per-worker is 4 on odd, and 3 on r1, r2, r3",
			Remedy: "set --min-peers-per-worker 3 on odd", Page: "docs/operations/settings-differ.md"})
		f.finds(t, odd, checkFinding{Check: "settings-agree", Status: "failed", Subject: "odd", Text: "--min-peers-per-worker is 4 on odd, and 3 on r1, r2, r3",
			Remedy: "set --min-peers-per-worker 3 on odd", Page: "docs/operations/settings-differ.md"})
		odd.Signal(t, syscall.SIGTERM)
		odd.Exit(t)
	})
	t.Run("a relay to which TCP passes and UDP does not", func(t *testing.T) {
		behind := freeAddr(t)
		half := f.startRelay(t, "half", "--gossip-addr", behind, "--advertise-addr", forwardTCP(t, behind))
		f.finds(t, r1, checkFinding{Check: "udp", Status: "failed", Subject: "half", Text: "relay half does not answer over UDP",
			Remedy: "allow UDP", Page: "docs/operations/udp-blocked.md"})
		f.finds(t, half, checkFinding{Check: "udp", Status: "failed", Subject: "half", Text: "r1 does not reach half over UDP",
			Remedy: "allow UDP", Page: "docs/operations/udp-blocked.md"})
		half.Signal(t, syscall.SIGTERM)
		half.Exit(t)
	})
	t.Run("a worker whose service no relay reaches", func(t *testing.T) {
		f.worker("w2").stopBackend(t)
		f.finds(t, r1, checkFinding{Check: "coverage", Status: "failed", Subject: "w2", Text: "has 0 of 3 relays connected, and needs 3: not r1, r2, r3",
			Remedy: "start the service behind w2", Page: "docs/operations/links.md"})
	})
	t.Run("a relay that is cut off", func(t *testing.T) {
		r3.Signal(t, syscall.SIGSTOP)
		defer r3.Signal(t, syscall.SIGCONT)
		f.finds(t, r1, checkFinding{Check: "relays-answer", Status: "failed", Subject: "r3", Text: "vanished",
			Remedy: "check the process and the network of r3", Page: "docs/operations/member-down.md"})
	})
	t.Run("a relay that is down", func(t *testing.T) {
		out := ringway(t, "check", "--admin-addr", freeAddr(t))
		if out.Code != 1 || !strings.Contains(out.Stderr, "is it running") {
			t.Errorf("%v", out)
		}
	})
}

// startRelay starts one relay more, with arguments of its own.
func (f *fleet) startRelay(t *testing.T, id string, args ...string) *relay {
	t.Helper()
	r := f.Relay(id)
	f.Start(r, processConfig{Args: slices.Concat(enough, args)})
	return &relay{Member: r}
}

// forwardTCP passes TCP on to an address, and drops UDP.
func forwardTCP(t *testing.T, to string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in, to)
		}
	}()
	return l.Addr().String()
}

func pass(in net.Conn, to string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}
