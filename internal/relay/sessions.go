package relay

import (
	"net/http"

	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/wire"
)

// withSessions takes the sessions of attached workers in clear text out of the requests of the peer
// listener. With certificates a session begins in the handshake, and a worker sends no request here.
func (r *Relay) withSessions(next http.Handler) http.Handler {
	if r.cfg.Membership.Identity != nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != session.Path || req.Header.Get(wire.HopHeader) != "" {
			next.ServeHTTP(w, req)
			return
		}
		if req.Header.Get("Upgrade") != session.Protocol {
			w.Header().Set("Upgrade", session.Protocol)
			w.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + session.Protocol + "\r\n\r\n"
		if _, err := conn.Write([]byte(answer)); err != nil {
			_ = conn.Close()
			return
		}
		r.attached.Go(conn, buffered)
	})
}
