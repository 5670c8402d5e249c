package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

const (
	// maxHello bounds the bytes that are read for a ClientHello. With post-quantum key shares
	// and several session tickets one takes about 4 KiB.
	maxHello = 16 << 10
	// maxServerName is the length of the longest name of DNS.
	maxServerName = 255
	// alertTimeout bounds the write of an alert.
	alertTimeout = time.Second
)

// Alerts of TLS (RFC 8446 6), as a record of their own.
const (
	alertInternal     = 80
	alertUnrecognized = 112
)

// alertOf returns the fatal alert for a refusal.
func alertOf(reason string) []byte {
	description := byte(alertInternal)
	switch reason {
	case reasonNoHello, reasonNotTLS, reasonNoServerName, string(wire.CodeUnknownService), string(wire.CodeBadRequest):
		description = alertUnrecognized
	}
	return []byte{21, 3, 3, 0, 2, 2, description}
}

// hello is what was read of a client, and the server name that its ClientHello has.
type hello struct {
	raw        []byte
	serverName string
}

// helloError is the reason that there is no server name.
type helloError struct {
	reason string
	err    error
}

func (e *helloError) Error() string { return e.err.Error() }

var (
	errSeen     = errors.New("the ClientHello is complete")
	errTooLarge = fmt.Errorf("the ClientHello takes more than %d bytes", maxHello)
	errNoName   = errors.New("the ClientHello has no server name: a client sends the name that it connects to, and no IP address")
	errBadName  = errors.New("the server name of the ClientHello is no name of DNS")
)

// readHello reads a ClientHello. Package crypto/tls reads it, from a connection that keeps
// the bytes and to which nothing can be written, and gives up before it would answer.
func readHello(conn net.Conn) (hello, *helloError) {
	seen := &recorder{Conn: conn}
	var got *tls.ClientHelloInfo
	err := tls.Server(seen, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		got = info
		return nil, errSeen
	}}).Handshake()
	h := hello{raw: seen.raw}
	switch {
	case got != nil:
		h.serverName = got.ServerName
		if h.serverName == "" {
			return h, &helloError{reasonNoServerName, errNoName}
		}
		if !isName(h.serverName) {
			return h, &helloError{reasonNotTLS, errBadName}
		}
		return h, nil
	case errors.Is(err, errTooLarge):
		return h, &helloError{reasonNotTLS, errTooLarge}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(seen.failed, io.EOF):
		return h, &helloError{reasonNoHello, err}
	}
	if h.serverName = dottedName(h.raw); h.serverName != "" {
		return h, nil
	}
	return h, &helloError{reasonNotTLS, err}
}

// dottedName returns the server name of a ClientHello that ends with a dot, without the dot. Such a
// name is the same (RFC 3986 §3.2.2). Clients send it although RFC 6066 §3 forbids the dot, and
// package crypto/tls refuses the ClientHello for it.
func dottedName(raw []byte) string {
	const handshake, clientHello, serverName = 22, 1, 0
	var message cursor
	for records := cursor(raw); len(records) > 0; {
		if records[0] != handshake {
			return ""
		}
		records.take(3)
		message = append(message, records.vector(2)...)
	}
	if len(message) == 0 || message[0] != clientHello {
		return ""
	}
	message.take(1 + 3 + 2 + 32) // kind, length, version, random
	message.vector(1)            // session
	message.vector(2)            // cipher suites
	message.vector(1)            // compression
	for extensions := message.vector(2); len(extensions) >= 4; {
		kind, body := extensions.take(2), extensions.vector(2)
		if kind[0] != 0 || kind[1] != serverName {
			continue
		}
		names := body.vector(2)
		names.take(1)
		name, dotted := strings.CutSuffix(string(names.vector(2)), ".")
		if dotted && isName(name) {
			return name
		}
		return ""
	}
	return ""
}

// cursor reads a message of TLS from its beginning. What is missing reads as empty.
type cursor []byte

func (c *cursor) take(n int) cursor {
	n = min(n, len(*c))
	taken := (*c)[:n:n]
	*c = (*c)[n:]
	return taken
}

// vector takes bytes behind their number, which has size bytes.
func (c *cursor) vector(size int) cursor {
	n := 0
	for _, b := range c.take(size) {
		n = n<<8 | int(b)
	}
	return c.take(n)
}

// isName reports whether the text has only characters of host names.
func isName(text string) bool {
	if len(text) > maxServerName {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// recorder is a connection that keeps what is read and drops what is written.
type recorder struct {
	net.Conn
	raw    []byte
	failed error
}

func (r *recorder) Read(b []byte) (int, error) {
	room := maxHello - len(r.raw)
	if room == 0 {
		return 0, errTooLarge
	}
	n, err := r.Conn.Read(b[:min(len(b), room)])
	r.raw = append(r.raw, b[:n]...)
	if err != nil {
		r.failed = err
	}
	return n, err
}

func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// Close keeps the connection: the client gets an alert.
func (r *recorder) Close() error { return nil }
