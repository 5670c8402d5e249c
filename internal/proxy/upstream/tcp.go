package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// ForTCP reports whether a request is for a TCP session.
func ForTCP(r *http.Request) bool {
	u := r.Header["Upgrade"]
	return len(u) == 1 && u[0] == wire.UpgradeTCP && upgradeOf(r) != ""
}

// Moved counts the bytes of tunnels while they are open. It may be shared.
type Moved struct{ ToEndpoint, ToClient atomic.Uint64 }

func (m *Moved) add(side, n int) {
	switch {
	case m == nil || n <= 0:
	case side == toClient:
		m.ToClient.Add(uint64(n))
	default:
		m.ToEndpoint.Add(uint64(n))
	}
}

// Broke is the side whose error ended a tunnel.
type Broke uint8

// The sides. BrokeNone is for a tunnel that both sides have closed, or that this process
// has ended.
const (
	BrokeNone Broke = iota
	BrokeClient
	BrokeEndpoint
)

// tunnelEnd keeps which side failed first.
type tunnelEnd struct{ first atomic.Uint32 }

func (e *tunnelEnd) record(d *direction, err error) {
	if err == nil {
		return // it ended in order, but dst cannot be closed for one direction only
	}
	// On the way to the client, dst is the client: an error of dst is its error.
	side := BrokeClient
	if (d.side == toClient) != d.refused {
		side = BrokeEndpoint
	}
	// The first error closes both connections, and the second one is a consequence.
	e.first.CompareAndSwap(uint32(BrokeNone), uint32(side))
}

// broke returns the side that has ended the tunnel, if neither this process nor the
// progress timeout has.
func (t *tunnel) broke(e *tunnelEnd) Broke {
	if t.res.Stopped || t.p.silentOf(t.g) != SilentNone {
		return BrokeNone
	}
	return Broke(e.first.Load())
}

// beginTCP opens a connection to the endpoint, which Deliver makes the other end of the client's.
// Before that nothing of the client is read.
func (p *Pool) beginTCP(w http.ResponseWriter, r *http.Request, x *Options) (begun Answer, _ Result, _ *Fault) {
	f := p.newFlight(w, r, x)
	if f == nil {
		return nil, Result{Load: -1}, &Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrClosed}
	}
	defer func() {
		if begun == nil {
			f.leave()
		}
	}()
	if !ForTCP(r) {
		return nil, f.res, f.fail(StageClient, errNotTCP)
	}
	f.upgrade = wire.UpgradeTCP
	var err *Fault
	if f.c, err = p.dialSession(r.Context(), &f.progress, x.Deadline); err != nil {
		if p.stopped(&f.progress) {
			err = f.fail(StageDial, ErrStopped)
		}
		return nil, f.res, err
	}
	if err = f.beginSession(); err != nil || f.res.Dropped {
		f.release(false, err)
		return nil, f.res, err
	}
	return f, f.res, nil
}

// dialSession opens a connection that is busy with the session. The end of the request's context
// ends the dial and not the session.
func (p *Pool) dialSession(ctx context.Context, g *progress, deadline time.Time) (*conn, *Fault) {
	if hasPassed(deadline) {
		return nil, &Fault{Stage: StageDial, Address: p.cfg.Address, Err: context.DeadlineExceeded, late: true}
	}
	limited := ctx
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		limited, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	nc, err := p.dial(limited)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			err.Stage = StageClient
		}
		return nil, err
	}
	c := newConn(nc)
	p.mu.Lock()
	p.engage(c, context.Background(), g)
	// During the dial the watch had no connection that it could end.
	stopped := g.stopping || g.abandoned.Load()
	p.mu.Unlock()
	if stopped {
		p.release(c, false)
		return nil, &Fault{Stage: StageDial, Address: p.cfg.Address, Err: ErrAbandoned}
	}
	return c, nil
}

// beginSession makes the answer to the client.
func (f *flight) beginSession() *Fault {
	if f.x.ProxyProtocol {
		if err := f.c.SetDeadline(f.x.Deadline); err != nil { // openTunnel removes it
			return f.fail(StageSend, err)
		}
		if _, err := f.c.Write(proxyHeader(f.r)); err != nil {
			return f.fail(StageSend, err)
		}
	}
	f.p.answers.Add(1)
	f.res.Status = http.StatusSwitchingProtocols
	if f.x.OnHead != nil && !f.x.OnHead(f.res) {
		f.res.Dropped = true
		return nil
	}
	header := f.w.Header()
	header["Upgrade"], header["Connection"] = []string{wire.UpgradeTCP}, []string{"Upgrade"}
	f.x.addResponse(header, false)
	return nil
}

// proxyHeader returns a header of version 2 of the PROXY protocol with the addresses of the
// client's connection, as the first relay saw them. Without them the header states that the connection
// has no client.
//
// Only the side that reads such headers needs a library: every program that routes links this one.
func proxyHeader(r *http.Request) []byte {
	const (
		local, proxied = 0x20, 0x21 // version 2 and the command
		tcp4, tcp6     = 0x11, 0x21 // family and transport
	)
	head := []byte("\r\n\r\n\x00\r\nQUIT\n")
	from, to, ok := connectionOf(r)
	switch {
	// LOCAL: the service takes the addresses of the connection itself.
	case !ok:
		return append(head, local, 0, 0, 0)
	case from.Addr().Is4() && to.Addr().Is4():
		head = append(head, proxied, tcp4, 0, 2*(4+2))
		head = append(append(head, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	default: // of two families, the one of version 4 is mapped
		client, relay := from.Addr().As16(), to.Addr().As16()
		head = append(head, proxied, tcp6, 0, 2*(16+2))
		head = append(append(head, client[:]...), relay[:]...)
	}
	head = binary.BigEndian.AppendUint16(head, from.Port())
	return binary.BigEndian.AppendUint16(head, to.Port())
}

// connectionOf reads wire.ConnectionHeader.
func connectionOf(r *http.Request) (from, to netip.AddrPort, ok bool) {
	values := r.Header[wire.ConnectionHeader]
	if len(values) != 1 {
		return from, to, false
	}
	client, local, _ := strings.Cut(values[0], " ")
	from, err := netip.ParseAddrPort(client)
	if err != nil {
		return from, to, false
	}
	if to, err = netip.ParseAddrPort(local); err != nil {
		return from, to, false
	}
	// A listener for both families reports an address of version 4 as a mapped one. The header has
	// no place for a zone.
	return netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port()), netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port()), true
}
