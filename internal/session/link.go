package session

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/identity"
)

// Why sessions ended, as metric labels.
const (
	endMoved   = "moved"
	endLost    = "lost"
	endRefused = "refused"
	endForged  = "forged"
	endFailed  = "failed"
)

// link is one session of a worker, from the dial to its end.
type link struct {
	key   linkKey
	relay string        // the id that is expected there; empty for a seed
	fresh chan struct{} // capacity 1: there is something to send
	done  chan struct{} // closed when it has ended
	moved atomic.Bool   // the worker ends it
	node  string        // of the certificate of the relay; set before the first row, empty in clear text

	// Client.mu guards the fields below.
	row   *Row      // the newest; nil before the first
	began time.Time // when the first row came
	until time.Time // when another replaces it, because of the certificate of the relay; zero before the hello and in clear text
}

func newLink(key linkKey, relay string) *link {
	return &link{key: key, relay: relay, fresh: make(chan struct{}, 1), done: make(chan struct{})}
}

func (l *link) notify() {
	publish.Notify(l.fresh)
}

// move ends the session: the worker goes to other relays, and lives.
func (l *link) move() {
	l.moved.Store(true)
	l.notify()
}

// serves reports whether a session counts for its relay: another replaces one that ends soon, and one
// with an earlier certificate of this worker. Client.mu is held.
func (l *link) serves(certificate [keyBytes]byte, now time.Time) bool {
	return l.key.certificate == certificate && !l.moved.Load() && (l.until.IsZero() || now.Before(l.until))
}

// serve is a session from its dial to its end.
func (c *Client) serve(ctx context.Context, l *link) error {
	conn, err := c.connect(ctx, l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	read := make(chan error, 1)
	c.running.Go(func() {
		read <- c.read(conn, l)
		cancel()
	})
	wrote := c.write(ctx, conn, l)
	if l.moved.Load() || wrote == errLeft {
		// The relay closes when it has read the last frame; closed first, the frame could be lost.
		_ = conn.SetDeadline(time.Now().Add(leaveTimeout))
		<-read
		_ = conn.Close()
		return nil
	}
	_ = conn.Close()
	if err := <-read; err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return wrote
}

// errForged ends a session in which a relay passes for another one.
var errForged = errors.New("forged row")

// errLeft ends a session because the worker has left.
var errLeft = errors.New("left")

// connect dials, proves both sides, and sends the hello.
func (c *Client) connect(ctx context.Context, l *link) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	if conn, err = dialer.DialContext(ctx, "tcp", l.key.address); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	c.notice(conn.LocalAddr())
	if source := c.cfg.Identity; source != nil {
		expected := identity.Expected{Node: l.relay, Role: identity.RoleRelay, Addr: l.key.address}
		secured := source.Client(conn, source.ClientConfig(source.Policy(identity.DataPlane), expected, Protocol))
		if err := secured.HandshakeContext(ctx); err != nil {
			return conn, err
		}
		if secured.ConnectionState().NegotiatedProtocol != Protocol {
			return conn, fmt.Errorf("%s does not speak %s: update the relay", l.key.address, Protocol)
		}
		conn = secured
	} else if conn, err = upgrade(conn, l.key.address); err != nil {
		return conn, err
	}
	if secured, ok := conn.(*tls.Conn); ok {
		claims, err := c.cfg.Identity.PeerClaims(secured.ConnectionState())
		if err != nil {
			return conn, err
		}
		l.node = claims.Node
		c.mu.Lock()
		l.until = handshake.Renewal(secured.ConnectionState().PeerCertificates)
		c.mu.Unlock()
	}
	h := Hello{Epoch: c.epoch, Cluster: c.cfg.Cluster, Environment: c.cfg.Environment, ID: c.cfg.ID, Datacenter: c.cfg.Datacenter, Region: c.cfg.Region, Version: c.cfg.Version}
	if _, err := conn.Write(AppendFrame(nil, KindHello, h.Encode())); err != nil {
		return conn, err
	}
	return conn, nil
}

// notice remembers the host of this worker.
func (c *Client) notice(local net.Addr) {
	if a, err := netip.ParseAddrPort(local.String()); err == nil {
		c.mu.Lock()
		c.host = netip.AddrPortFrom(a.Addr().Unmap(), 0).String()
		c.mu.Unlock()
	}
}

// upgrade begins a session in clear text.
func upgrade(conn net.Conn, host string) (net.Conn, error) {
	request := "GET " + Path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: " + Protocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(request)); err != nil {
		return conn, err
	}
	reader := bufio.NewReaderSize(conn, 4<<10)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		if _, secured := errors.AsType[tls.RecordHeaderError](err); secured {
			return conn, err
		}
		return conn, fmt.Errorf("%s does not answer in clear text: does the relay have a certificate, and this worker none? %w", host, err)
	}
	if answer.StatusCode == http.StatusForbidden {
		reason, _ := io.ReadAll(io.LimitReader(answer.Body, 200)) // the status is enough
		return conn, fmt.Errorf("%s refuses a session: %.200q", host, strings.TrimSpace(string(reason)))
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return conn, fmt.Errorf("%s answers %s to a session: give the peer address of a relay of this release", host, answer.Status)
	}
	return &buffered{conn, reader}, nil
}

// buffered is a connection whose first bytes have been read.
type buffered struct {
	net.Conn
	reader *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

// write sends the record, the state and beats, until the session ends.
func (c *Client) write(ctx context.Context, conn net.Conn, l *link) error {
	beat := time.NewTicker(BeatInterval)
	defer beat.Stop()
	var record []byte
	var state byte
	for {
		var out []byte
		c.mu.Lock()
		next, draining, leaving := c.record, c.draining, c.leaving
		ours := c.signer == l.key.certificate
		c.mu.Unlock()
		flags := byte(0)
		if draining {
			flags = FlagDraining
		}
		if flags != state {
			out, state = AppendFrame(out, KindState, []byte{flags}), flags
		}
		if next != nil && (record == nil || &next[0] != &record[0]) && ours {
			out, record = AppendFrame(out, KindRecord, next), next
		}
		switch {
		case leaving:
			out = AppendFrame(out, KindLeave, nil)
		case l.moved.Load():
			out = AppendFrame(out, KindMoved, nil)
		}
		if len(out) > 0 {
			_ = conn.SetWriteDeadline(time.Now().Add(Silence))
			if _, err := conn.Write(out); err != nil {
				return err
			}
		}
		if leaving || l.moved.Load() {
			return errLeft
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.fresh:
		case <-beat.C:
			_ = conn.SetWriteDeadline(time.Now().Add(Silence))
			if _, err := conn.Write(AppendFrame(nil, KindBeat, nil)); err != nil {
				return err
			}
		}
	}
}

// framesPerSecond and framesBurst bound the frames of a relay. It sends a row when relays come and
// go, several at a time.
const framesPerSecond, framesBurst = 10, 100

// read takes the rows of the relay, until the session ends.
func (c *Client) read(conn net.Conn, l *link) error {
	first, frames := true, rate.NewLimiter(framesPerSecond, framesBurst)
	for {
		if !first {
			_ = conn.SetReadDeadline(time.Now().Add(Silence))
		}
		kind, payload, err := ReadFrame(conn, maxFromHere)
		if err != nil {
			return err
		}
		if !frames.Allow() {
			return fmt.Errorf("%w: more than %d frames a second", errFrame, framesPerSecond)
		}
		switch kind {
		case KindBeat:
		case KindRefused:
			refusal, err := DecodeRefusal(payload)
			if err != nil {
				return err
			}
			return refusal
		case KindRow:
			row, err := DecodeRow(payload)
			if err != nil {
				return err
			}
			if l.node != "" && row.Self != l.node {
				return fmt.Errorf("%w: %s has the certificate of %s and sends a row of %s: find out what runs there, and replace that certificate", errForged, l.key.address, l.node, row.Self)
			}
			c.take(l, row)
			first = false
		default: // of a later release
		}
	}
}

// take stores a row.
func (c *Client) take(l *link, row Row) {
	c.mu.Lock()
	began := l.row == nil
	if began || row.Version > l.row.Version {
		l.row = &row
	}
	if began {
		l.relay, l.began = row.Self, time.Now()
		delete(c.tries, l.key.address)
		select {
		case <-c.joined:
		default:
			close(c.joined)
		}
	}
	c.mu.Unlock()
	if began {
		c.logger.Info("session with a relay", "relay", row.Self, "addr", l.key.address)
	}
	c.notify()
}
