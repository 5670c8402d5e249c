package membership

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// protocolSync is the anti-entropy protocol of package advertise.
const protocolSync = "adsync/1"

func ours() hello {
	return hello{cluster: "staging", environment: "eu", format: helloFormat, id: "relay-1", epoch: 5, role: identity.RoleRelay}
}

func TestAHelloSurvivesTheWire(t *testing.T) {
	want := ours()
	want.format, want.protocol, want.keys = helloFormat, protocolSync, "abcd"
	got, complete, err := decodeHello(want.append(nil))
	if err != nil || !complete || got != want {
		t.Fatalf("got %+v complete=%v err=%v, want %+v", got, complete, err, want)
	}
	got, complete, err = decodeHello(append(want.append(nil), "fields of a later build"...))
	if err != nil || !complete || got != want {
		t.Fatalf("with a longer tail: got %+v complete=%v err=%v", got, complete, err)
	}
}

func TestAForeignClusterIsReportedBeforeAnyOtherDifferenceOfItsHello(t *testing.T) {
	foreign := gossip.AppendText(append([]byte(nil), helloMagic...), "prod")
	foreign = append(gossip.AppendText(foreign, "eu"), 0xff, 0xff, 0xff) // garbage from here on
	h, complete, err := decodeHello(foreign)
	if err != nil {
		t.Fatal(err)
	}
	refusal := ours().compare(h, complete)
	if refusal == nil || refusal.Field != fieldCluster || refusal.Theirs != "prod" {
		t.Fatalf("got %v, want a cluster refusal", refusal)
	}
}

func TestWhoIsRefusedAndWhy(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*hello)
		field  string
	}{
		{"same cluster", func(*hello) {}, ""},
		{"other cluster", func(h *hello) { h.cluster = "prod" }, fieldCluster},
		{"other environment", func(h *hello) { h.environment = "us" }, fieldEnvironment},
		{"cluster before environment", func(h *hello) { h.cluster, h.environment = "prod", "us" }, fieldCluster},
		{"format of tomorrow", func(h *hello) { h.format = 9 }, fieldFormat},
		{"unknown role", func(h *hello) { h.role = "client" }, fieldRole},
		{"bad id", func(h *hello) { h.id = "a b" }, fieldID},
		{"gossip key that we lack", func(h *hello) { h.keys = "aaaaaaaa" }, fieldKey},
		{"unserved protocol", func(h *hello) { h.protocol = "chat/1" }, fieldProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			theirs := hello{cluster: "staging", environment: "eu", format: helloFormat, protocol: protocolMemberlist, id: "worker-1", epoch: 7, role: identity.RoleWorker}
			c.change(&theirs)
			joiner, seed := exchange(t, theirs, ours())
			if c.field == "" {
				if joiner != nil || seed != nil {
					t.Fatalf("refused: joiner %v, seed %v", joiner, seed)
				}
				return
			}
			var s *RefusalError
			if !errors.As(seed, &s) || s.Field != c.field {
				t.Fatalf("seed: %v, want a refusal for %s", seed, c.field)
			}
			var j *RefusalError
			if !errors.As(joiner, &j) || j.Field != c.field {
				t.Fatalf("joiner: %v, want a refusal for %s", joiner, c.field)
			}
			if j.Node != "relay-1" {
				t.Errorf("the joiner's error names %q, not the seed", j.Node)
			}
		})
	}
}

// exchange runs both halves over a real connection. The joiner sends exactly the
// hello it is given.
func exchange(t *testing.T, joiner, seed hello) (joinerErr, seedErr error) {
	t.Helper()
	ln := procs.Listen(t)
	done := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		_, _, err = greeting{hello: seed, conn: conn}.admit(func(p string) bool { return p == protocolMemberlist })
		done <- err
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := writeFrame(conn, joiner.append(nil)); err != nil {
		t.Fatal(err)
	}
	// greet would send its own, correct hello; pass it a connection that drops it.
	_, joinerErr = greeting{hello: joiner, conn: muted{conn}}.greet(t.Context(), joiner.protocol)
	return joinerErr, <-done
}

type muted struct{ net.Conn }

func (muted) Write(b []byte) (int, error) { return len(b), nil }

func TestARefusalReadsLikeADiagnosis(t *testing.T) {
	err := &RefusalError{Field: "cluster", Ours: "staging", Theirs: "prod", Node: "relay-7", Addr: "10.0.1.5:7400"}
	if got, want := err.Error(), `cluster mismatch: ours "staging", theirs "prod" (relay-7, 10.0.1.5:7400): give both the same --cluster, or correct --join`; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestALongAnnouncedHelloIsCutOff(t *testing.T) {
	if _, err := readFrame(bytes.NewReader([]byte{0xff, 0xff})); !errors.Is(err, errHello) {
		t.Fatalf("got %v, want %v", err, errHello)
	}
}

func TestAnAcceptorThatIsNoRingwayMemberIsNamedSo(t *testing.T) {
	ln := procs.Listen(t)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("\x00\x10HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = greeting{hello: ours(), conn: conn}.greet(context.Background(), protocolMemberlist)
	if err == nil || !strings.Contains(err.Error(), "is the other end a Ringway member?") {
		t.Fatalf("got %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(ours().append(nil))
	f.Add([]byte("RWY\x04prod\x02eu"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, complete, err := decodeHello(b)
		if err != nil {
			return
		}
		ours().compare(h, complete)
		if !complete {
			return
		}
		if back, _, err := decodeHello(h.append(nil)); err != nil || back != h {
			t.Fatalf("%+v became %+v (%v)", h, back, err)
		}
	})
}
