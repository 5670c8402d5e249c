package router

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// peers answers the requests that other relays forward. The methods of nil do nothing.
type peers struct {
	server    *downstream.Server
	socket    net.Listener
	admission *handshake.Listener // nil without a certificate
}

// listen binds the address for other relays.
func (r *Router) listen(handler http.Handler) (*peers, error) {
	bind := func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	if r.member.Network != nil {
		bind = r.member.Network.Listen
	}
	socket, err := bind(r.cfg.PeerAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for other relays on %s: %w: is another process on this port?", r.cfg.PeerAddr, err)
	}
	cfg := downstream.Config{
		Handler: handler, HeadTimeout: downstream.DefaultHeadTimeout, IdleTimeout: downstream.DefaultIdleTimeout,
		SendTimeout: upstream.BehindRelay(ingress.DefaultProgress), Shared: downstream.OfRelays, Logger: r.cfg.Logger,
	}
	p := &peers{socket: socket}
	if source := r.member.Identity; source != nil {
		cfg.Until = handshake.UntilRenewal(source)
		p.admission = ingress.AdmitPeers(handshake.ListenerConfig{Socket: socket, Source: source, Divert: r.core.Attached.Divert, Refused: ingress.NewRefusedPeers(r.cfg.Registerer), Logger: r.cfg.Logger})
	}
	p.server = downstream.New(cfg)
	return p, nil
}

// serve answers until close.
func (p *peers) serve() (err error) {
	if p.admission == nil {
		err = p.server.Serve(p.socket)
	} else {
		var admitting sync.WaitGroup
		defer admitting.Wait()
		admitting.Go(p.admission.Run)
		err = p.server.Serve(p.admission)
	}
	if err == http.ErrServerClosed {
		return nil
	}
	return fmt.Errorf("serve other relays: %w", err)
}

// shutdown closes the listener and waits for the requests of other relays.
func (p *peers) shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.server.Shutdown(ctx)
}

func (p *peers) close() {
	if p != nil {
		_ = p.socket.Close() // may be closed already
		_ = p.server.Close()
	}
}
