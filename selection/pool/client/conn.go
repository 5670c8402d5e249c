package client

import (
	"context"
	"net/http"
	"time"

	"github.com/ringway/ringway/selection/pool"
)

const (
	// pingAfter and pingTimeout find an HTTP/2 connection whose other side is gone
	// without a word.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// relayConn is a connection to a relay.
type relayConn struct {
	*http.ClientConn
	lost func(error)
}

func newTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	switch {
	case cfg.HTTP1:
		protocols.SetHTTP1(true)
	case cfg.TLS != nil:
		protocols.SetHTTP2(true)
	default:
		protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Transport{
		Protocols:       &protocols,
		TLSClientConfig: cfg.TLS,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

func (c *Client) scheme() string {
	if c.cfg.TLS != nil {
		return "https"
	}
	return "http"
}

// open is what the pool opens connections with.
func (c *Client) open(ctx context.Context, relay pool.Peer, lost func(error)) (*relayConn, error) {
	conn, err := c.transport.NewClientConn(ctx, c.scheme(), relay.Address)
	if err != nil {
		return nil, err
	}
	conn.SetStateHook(func(conn *http.ClientConn) {
		if err := conn.Err(); err != nil {
			lost(err)
		}
	})
	return &relayConn{conn, lost}, nil
}
