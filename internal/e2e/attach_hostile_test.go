//go:build unix

package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	attachment "github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership/identity"
)

// intruder speaks the protocol of sessions with the certificate of a worker, and keeps to nothing.
type intruder struct {
	t     *testing.T
	conn  net.Conn
	epoch uint64
}

// intrude connects to a relay with the certificate of a holder, and sends a hello.
func (f *fleet) intrude(t *testing.T, holder, id string, epoch uint64) *intruder {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: procs.Patience}, "tcp", f.relays[0].Peer, f.Security.TLSConfig(t, holder, attachment.Protocol))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	i := &intruder{t, conn, epoch}
	i.send(attachment.KindHello, attachment.Hello{Epoch: epoch, Cluster: cluster, Environment: environment, ID: id}.Encode())
	return i
}

func (i *intruder) send(kind attachment.Kind, payload []byte) {
	_, _ = i.conn.Write(attachment.AppendFrame(nil, kind, payload)) // the relay may have ended the session
}

// next returns the next frame that is no beat; nothing when the session has ended.
func (i *intruder) next() (attachment.Kind, []byte) {
	i.t.Helper()
	_ = i.conn.SetReadDeadline(time.Now().Add(procs.Patience))
	for {
		kind, payload, err := attachment.ReadFrame(i.conn, 1<<20)
		if err != nil {
			return 0, nil
		}
		if kind != attachment.KindBeat {
			return kind, payload
		}
	}
}

// refusedFor waits until the relay ends the session for a reason.
func (i *intruder) refusedFor(reason string) {
	i.t.Helper()
	for {
		kind, payload := i.next()
		switch kind {
		case attachment.KindRow:
			continue
		case attachment.KindRefused:
			if why, err := attachment.DecodeRefusal(payload); err != nil || why.Code != reason {
				i.t.Errorf("refused for %v (%v), want %s", why, err, reason)
			}
			return
		}
		i.t.Errorf("frame %d, want a refusal for %s", kind, reason)
		return
	}
}

// record returns the record of a worker, signed by the holder of a certificate; unsigned without one.
func (f *fleet) record(t *testing.T, holder, id string, epoch, sequence uint64, services ...advertise.Service) []byte {
	t.Helper()
	raw, err := advertise.Record{NodeID: id, Epoch: epoch, Sequence: sequence, Services: services}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if holder == "" {
		return raw
	}
	source, err := identity.NewSource(identity.Files{Certificate: f.Security.Path(holder + ".crt"), Key: f.Security.Path(holder + ".key"), Authorities: f.Security.Path("ca/ca.crt")}, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	signature := attachment.Sign(source, cluster+"/"+environment, raw[1:])
	return append(append(append([]byte{raw[0] + 1}, raw[1:]...), 0xc4, byte(len(signature))), signature...)
}

func TestASessionGivesACertificateNothingThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Secure: true, Attached: true, Services: func(int) []string { return []string{echo} }})
	f.attached(t, 1, 2)
	for _, id := range []string{"x1", "x2", "x3", "x4", "x5", "x6", "x7"} {
		if err := f.Security.Issue(procs.Claims{Role: "worker", Node: id}); err != nil {
			t.Fatal(err)
		}
	}
	r, now := f.relays[0], uint64(time.Now().UnixMilli())
	counted := func(t *testing.T, series string, want float64) {
		t.Helper()
		procs.Await(t, series, func() bool { return f.metric(t, r, series) >= want })
	}
	refusals := func(reason string) string { return `ringway_session_refused_total{reason="` + reason + `"}` }
	service := advertise.Service{Name: echo, Address: "127.0.0.1:9", Secured: true}

	t.Run("it cannot be listed for another id", func(t *testing.T) {
		f.intrude(t, "x1", "w1", now+1).refusedFor("identity")
		f.intrude(t, "x1", "x2", now).refusedFor("identity")
		counted(t, refusals("identity"), 2)
	})
	t.Run("it cannot take the id of a relay", func(t *testing.T) {
		f.intrude(t, "x1", "r2", now).refusedFor("identity")
	})
	t.Run("it is not listed without a record that it has signed", func(t *testing.T) {
		for name, raw := range map[string][]byte{
			"unsigned":            f.record(t, "", "x1", now, 1, service),
			"signed by another":   f.record(t, "x2", "x1", now, 1, service),
			"of another":          f.record(t, "x1", "w1", now, 1, service),
			"of another life":     f.record(t, "x1", "x1", now-1, 1, service),
			"that is none at all": []byte("garbage"),
		} {
			i := f.intrude(t, "x1", "x1", now)
			if kind, _ := i.next(); kind != attachment.KindRow {
				t.Fatalf("%s: frame %d, want a row", name, kind)
			}
			i.send(attachment.KindRecord, raw)
			i.refusedFor("record")
		}
		counted(t, refusals("record"), 5)
		if !f.sees("x1", false) {
			t.Error("it is a member")
		}
	})
	t.Run("it offers no other host", func(t *testing.T) {
		i := f.intrude(t, "x2", "x2", now)
		i.send(attachment.KindRecord, f.record(t, "x2", "x2", now, 1, advertise.Service{Name: "stolen", Address: "10.9.9.9:80", Secured: true}))
		procs.Await(t, "it is a member, by a signed record", func() bool { return f.sees("x2", true) })
		for _, one := range f.relays {
			procs.Await(t, one.ID+" refuses its offer", func() bool {
				return f.metric(t, one, `ringway_advertise_offers_refused_total{reason="foreign_host"}`) == 1
			})
		}
		if a := f.call(r, "stolen"); a.status == 200 {
			t.Errorf("the service is reached: %v", a)
		}
	})
	t.Run("it has two sessions at most", func(t *testing.T) {
		first := f.intrude(t, "x3", "x3", now)
		_, _ = first.next()
		second := f.intrude(t, "x3", "x3", now)
		_, _ = second.next()
		f.intrude(t, "x3", "x3", now).refusedFor("too_many_of_certificate")
		counted(t, refusals("too_many_of_certificate"), 1)
	})
	t.Run("an older life does not come back", func(t *testing.T) {
		i := f.intrude(t, "x4", "x4", now)
		i.send(attachment.KindRecord, f.record(t, "x4", "x4", now, 1))
		procs.Await(t, "it is a member", func() bool { return f.sees("x4", true) })
		f.intrude(t, "x4", "x4", now-1).refusedFor("superseded")
		f.intrude(t, "x4", "x4", now+uint64(time.Hour.Milliseconds())).refusedFor("epoch")
	})
	t.Run("its flood of records ends its session", func(t *testing.T) {
		i := f.intrude(t, "x5", "x5", now)
		raw := f.record(t, "x5", "x5", now, 1)
		for range 200 {
			i.send(attachment.KindRecord, raw)
		}
		i.refusedFor("too_many_frames")
		counted(t, refusals("too_many_frames"), 1)
	})
	t.Run("its flood of states ends its session", func(t *testing.T) {
		i := f.intrude(t, "x6", "x6", now)
		i.send(attachment.KindRecord, f.record(t, "x6", "x6", now, 1))
		for n := range 200 {
			i.send(attachment.KindState, []byte{byte(n % 2)})
		}
		i.refusedFor("too_many_frames")
	})
	t.Run("beats without a record hold no session", func(t *testing.T) {
		i := f.intrude(t, "x7", "x7", now)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Second):
					_, _ = i.conn.Write(attachment.AppendFrame(nil, attachment.KindBeat, nil))
				}
			}
		}()
		i.refusedFor("timeout")
		counted(t, refusals("timeout"), 1)
	})
	t.Run("a worker sends no requests to a relay, and a relay has no sessions", func(t *testing.T) {
		before := f.metric(t, r, `ringway_relay_peers_refused_total{reason="role"}`) + f.metric(t, r, `ringway_relay_peers_refused_total{reason="matrix"}`)
		for holder, protocol := range map[string]string{"x1": "http/1.1", "r2": attachment.Protocol, "": attachment.Protocol} {
			ctx, cancel := context.WithTimeout(t.Context(), procs.Patience)
			dialer := tls.Dialer{Config: f.Security.TLSConfig(t, holder, protocol)}
			conn, err := dialer.DialContext(ctx, "tcp", r.Peer)
			cancel()
			if err != nil {
				continue
			}
			// In TLS 1.3 a client learns of the refusal at its first read.
			_ = conn.SetReadDeadline(time.Now().Add(procs.Patience))
			_, _ = conn.Write(attachment.AppendFrame(nil, attachment.KindHello, attachment.Hello{Epoch: now, Cluster: cluster, Environment: environment, ID: "x1"}.Encode()))
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("the holder of %q speaks %s and reads %d bytes", holder, protocol, n)
			}
			_ = conn.Close()
		}
		procs.Await(t, "two refusals are counted", func() bool {
			return f.metric(t, r, `ringway_relay_peers_refused_total{reason="role"}`)+f.metric(t, r, `ringway_relay_peers_refused_total{reason="matrix"}`) >= before+2
		})
	})
	if a := f.call(r, echo); a.status != 200 {
		t.Errorf("afterwards: %v", a)
	}
}
