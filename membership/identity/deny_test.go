package identity

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/keyfile"
)

func TestADenyListIsReadStrictlyAndEveryMistakeIsNamedWithItsLine(t *testing.T) {
	list, err := parseDenyList([]byte("# stolen on Monday\n\nserial 00AbCd  # w-7\n\tnode worker-7\r\nserial 0\nnode worker-7\n"))
	if err != nil || len(list.serials) != 2 || !list.serials["abcd"] || !list.serials["0"] || len(list.nodes) != 1 || !list.nodes["worker-7"] {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = parseDenyList([]byte("serial\nserial xyz\nserial ab:cd\nserial " + strings.Repeat("a", 41) + "\nnode a b\nnode a/b\nnodes a\nnode " + strings.Repeat("n", 64) + "\nnode fine\nworker-7"))
	for _, want := range []string{
		"line 1: serial with 0 values", `line 2: serial "xyz": allowed are 1 to 40 hexadecimal digits`, "line 3: ", "without colons", "line 4: ",
		"line 5: node with 2 values: allowed is one on each line", `line 6: node "a/b": allowed are 1 to 63`, "line 7: \"nodes\": allowed are `serial HEX` and `node ID`",
		"line 8: ", "line 10: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	if _, err := parseDenyList([]byte(strings.Repeat("x\n", 1000))); err == nil || strings.Count(err.Error(), "\n") != maxProblems || !strings.Contains(err.Error(), "980 lines more") {
		t.Errorf("a thousand mistakes: %.200v", err)
	}
}

func FuzzParseDenyList(f *testing.F) {
	f.Add([]byte("serial 1f\nnode a # b\n"))
	f.Add([]byte("serial\nnode\x00\n\n#"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseDenyList(data)
		if err != nil {
			if len(err.Error()) > 8192 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		var again strings.Builder
		for serial := range list.serials {
			fmt.Fprintln(&again, "serial", serial)
		}
		for node := range list.nodes {
			fmt.Fprintln(&again, "node", node)
		}
		if list2, err := parseDenyList([]byte(again.String())); err != nil || list2.size() != list.size() {
			t.Fatalf("written again it has %d entries, not %d: %v", list2.size(), list.size(), err)
		}
	})
}

func TestADeniedCertificateIsRefusedInBothDirectionsWithoutARestart(t *testing.T) {
	a := newAuthority(t)
	f := filesIn(t.TempDir())
	f.Denied = f.Key + ".denied"
	self, logs := sourceFrom(t, f, issued(t, a, claimsOf(RoleRelay, "relay-1")))
	server, client := self.ServerConfig(self.Policy(DataPlane)), self.ClientConfig(self.Policy(DataPlane), Expected{})
	stolen := sourceOf(t, a, claimsOf(RoleRelay, "relay-7"))
	asClient, asServer := stolen.ClientConfig(stolen.Policy(DataPlane), Expected{}), stolen.ServerConfig(stolen.Policy(DataPlane))
	expect := func(list string, want Reason) {
		t.Helper()
		deny(t, f, list)
		mustReload(t, self, true)
		in, out := meet(t, asClient, server), meet(t, client, asServer)
		for direction, err := range map[direction]error{inbound: in.server, outbound: out.client} {
			if got, _ := reasonOf(err); got != want {
				t.Errorf("%q: %s it is refused as %q, want %q: %v", list, direction, got, want, err)
			}
		}
		if got, _ := reasonOf(self.current.Load().refuseDenied(stolen.current.Load().pair.Leaf)); got != want {
			t.Errorf("%q: Denied says %q", list, got)
		}
	}
	expect("node relay-8\nserial 1", "")
	expect("serial "+strings.ToUpper(stolen.Info().Serial), reasonDenied)
	expect("node relay-7", reasonDenied)
	expect("", "")
	for _, d := range []direction{inbound, outbound} {
		if n := testutil.ToFloat64(self.metrics.refusals.WithLabelValues(string(d), string(reasonDenied))); n != 2 {
			t.Errorf("counted %v %s", n, d)
		}
	}
	if n := testutil.ToFloat64(self.metrics.denyReloads.WithLabelValues(resultReplaced)); n != 4 || logs.Lines("deny list replaced") != 4 {
		t.Errorf("counted %v, logged %d", n, logs.Lines("deny list replaced"))
	}
	deny(t, f, "node relay-1")
	mustReload(t, self, true)
	if logs.Lines("our own certificate is on the deny list") != 1 {
		t.Error("not said that the others refuse us")
	}
}

func TestABrokenDenyListKeepsTheLastGoodOneAndHoldsUpNoCertificate(t *testing.T) {
	a := newAuthority(t)
	c := claimsOf(RoleRelay, "relay-1")
	worker := sourceOf(t, a, claimsOf(RoleWorker, "worker-7"))
	for name, test := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"wrong":     {func(path string) error { return os.WriteFile(path, []byte("node worker-8\nworker-9\n"), 0o600) }, "line 2: "},
		"gone":      {os.Remove, "correct the path"},
		"too large": {func(path string) error { return os.Truncate(path, keyfile.MaxBytes+1) }, "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			f := filesIn(t.TempDir())
			f.Denied = f.Key + ".denied"
			content := issued(t, a, c)
			content.Denied = []byte("node worker-7")
			self, logs := sourceFrom(t, f, content)
			fingerprint := self.Info().Fingerprint
			if err := test.change(f.Denied); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if replaced, err := self.Reload(); replaced || err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("replaced %v, %v, want %q", replaced, err, test.want)
				}
			}
			if _, err := self.Certify(worker.Chain()); err == nil || self.DenyProblem() == nil || self.Problem() != nil {
				t.Error("the list is not in use, or there is no problem")
			}
			if n := testutil.ToFloat64(self.metrics.denyReloads.WithLabelValues(resultFailed)); n != 1 || logs.Lines("deny list not replaced") != 1 {
				t.Errorf("one broken state was counted %v times, logged %d times", n, logs.Lines("deny list not replaced"))
			}
			only := f
			only.Denied = "" // the renewed certificate alone
			write(t, only, issued(t, a, c))
			if replaced, err := self.Reload(); !replaced || err == nil || self.Info().Fingerprint == fingerprint {
				t.Errorf("a broken list holds up the certificate: %v, %v", replaced, err)
			}
			if _, err := self.Certify(worker.Chain()); err == nil {
				t.Error("with the new certificate the list is lost")
			}
			// The other way round: broken certificate files do not hold up the list.
			if err := os.WriteFile(f.Key, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			deny(t, f, "node worker-8")
			if replaced, err := self.Reload(); !replaced || err == nil {
				t.Errorf("broken certificate files hold up the list: %v, %v", replaced, err)
			}
			if _, err := self.Certify(worker.Chain()); err != nil {
				t.Errorf("the new list is not in use: %v", err)
			}
			if _, err := NewSource(f, SourceConfig{}); err == nil {
				t.Error("started with broken files")
			}
		})
	}
	f := filesIn(t.TempDir())
	f.Denied = f.Key + ".denied"
	content := issued(t, a, c)
	content.Denied = []byte("what")
	write(t, f, content)
	if _, err := NewSource(f, SourceConfig{}); err == nil || !strings.Contains(err.Error(), f.Denied+": line 1: ") {
		t.Errorf("started with a wrong list: %v", err)
	}
}

func TestAChangeOfCertificateAuthoritiesOrDenyListIsAnEvent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		f := filesIn(dir)
		f.Denied = f.Key + ".denied"
		c := claimsOf(RoleRelay, "relay-1")
		self, _ := sourceFrom(t, f, issued(t, a, c))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- self.Run(ctx) }()
		changed := self.Changed()
		time.Sleep(time.Minute)
		select {
		case <-changed:
			t.Error("an event without a change")
		default:
		}
		for what, change := range map[string]func(){
			"deny list":   func() { deny(t, f, "node a") },
			"certificate": func() { only := f; only.Denied = ""; write(t, only, issued(t, a, c)) },
		} {
			changed, began := self.Changed(), time.Now()
			change()
			<-changed // synctest reports a deadlock when it never comes
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: the event comes after %s", what, took)
			}
		}
		cancel()
		<-done
	})
}
