package tcp

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// helloOf returns the bytes with which a client begins.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, config).Handshake()
		_ = client.Close()
	}()
	raw := make([]byte, 64<<10)
	n, err := server.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	return raw[:n]
}

// script is a connection from which the bytes come in pieces.
type script struct {
	net.Conn
	pieces [][]byte
	wrote  bool
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *script) Write(b []byte) (int, error)      { s.wrote = true; return len(b), nil }
func (*script) Close() error                       { return nil }
func (*script) SetDeadline(time.Time) error        { return nil }
func (*script) SetReadDeadline(time.Time) error    { return nil }
func (*script) SetWriteDeadline(t time.Time) error { return nil }
func (*script) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (*script) RemoteAddr() net.Addr               { return &net.TCPAddr{} }

func TestAClientHelloGivesTheServerNameAndStaysWhole(t *testing.T) {
	raw := helloOf(t, &tls.Config{ServerName: "db.example.com"})
	old := helloOf(t, &tls.Config{ServerName: "DB.example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	single := make([][]byte, len(raw))
	for i := range raw {
		single[i] = raw[i : i+1]
	}
	// Two records of TLS may carry one ClientHello.
	body := raw[5:]
	half := len(body) / 2
	record := func(b []byte) []byte { return append([]byte{22, 3, 1, byte(len(b) >> 8), byte(len(b))}, b...) }
	split := append(record(body[:half]), record(body[half:])...)
	dotted := bytes.Replace(raw, []byte("db.example.com"), []byte("db.example.co."), 1)
	for name, c := range map[string]struct {
		all  [][]byte
		want string
	}{
		"with a dot at the end":                 {[][]byte{dotted}, "db.example.co"},
		"with a dot at the end, in two records": {[][]byte{append(record(dotted[5:105]), record(dotted[105:])...)}, "db.example.co"},
		"in one piece":                          {[][]byte{raw}, "db.example.com"},
		"byte by byte":                          {single, "db.example.com"},
		"in two records":                        {[][]byte{split}, "db.example.com"},
		"of TLS 1.1":                            {[][]byte{old}, "DB.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &script{pieces: slices.Clone(c.all)}
			h, err := readHello(conn)
			if err != nil || h.serverName != c.want {
				t.Fatalf("%q, %v", h.serverName, err)
			}
			if all := bytes.Join(c.all, nil); !bytes.Equal(h.raw, all) {
				t.Errorf("%d bytes of %d were kept", len(h.raw), len(all))
			}
			if conn.wrote {
				t.Error("the client got an answer")
			}
		})
	}
}

func TestWhatIsNoClientHelloWithANameIsRefusedWithAReason(t *testing.T) {
	raw := helloOf(t, &tls.Config{ServerName: "db.example.com"})
	crooked := bytes.Replace(raw, []byte("db.example.com"), []byte("db.ex\r\nple.com"), 1)
	dots := bytes.Replace(raw, []byte("db.example.com"), []byte("db.\r\nample.co."), 1)
	endless := []byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}
	for name, c := range map[string]struct {
		sent []byte
		want string
	}{
		"nothing":                     {nil, reasonNoHello},
		"a part":                      {raw[:len(raw)-1], reasonNoHello},
		"HTTP":                        {[]byte("GET / HTTP/1.1\r\nHost: db.example.com\r\n\r\n"), reasonNotTLS},
		"zeros":                       {make([]byte, 1<<20), reasonNotTLS},
		"a record that is too large":  {append(endless, make([]byte, 1<<20)...), reasonNotTLS},
		"many empty records":          {bytes.Repeat([]byte{22, 3, 1, 0, 0}, 1<<16), reasonNotTLS},
		"without a server name":       {helloOf(t, &tls.Config{InsecureSkipVerify: true}), reasonNoServerName},
		"for an address":              {helloOf(t, &tls.Config{ServerName: "10.0.0.1"}), reasonNoServerName},
		"with a line break":           {crooked, reasonNotTLS},
		"with a dot and a line break": {dots, reasonNotTLS},
		"a part, with a dot":          {bytes.Replace(raw, []byte("db.example.com"), []byte("db.example.co."), 1)[:len(raw)-1], reasonNoHello},
		"with a very long name":       {helloOf(t, &tls.Config{ServerName: strings.Repeat("a", 300) + ".example.com"}), reasonNotTLS},
	} {
		t.Run(name, func(t *testing.T) {
			var pieces [][]byte
			if len(c.sent) > 0 {
				pieces = [][]byte{c.sent}
			}
			h, err := readHello(&script{pieces: pieces})
			if err == nil || err.reason != c.want {
				t.Errorf("%+v", err)
			}
			if len(h.raw) > maxHello {
				t.Errorf("%d bytes were read", len(h.raw))
			}
		})
	}
}

// FuzzHello checks that no input makes readHello panic, read more than its bound, or accept
// a name that a header could not hold.
func FuzzHello(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: "db.example.com"}))
	f.Add(helloOf(f, &tls.Config{InsecureSkipVerify: true}))
	f.Add(helloOf(f, &tls.Config{ServerName: "a.b", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}))
	f.Add(bytes.Replace(helloOf(f, &tls.Config{ServerName: "db.example.com"}), []byte("example.com"), []byte("example.co."), 1))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := &script{pieces: [][]byte{sent, nil}}
		if len(sent) == 0 {
			conn.pieces = nil
		}
		h, err := readHello(conn)
		if len(h.raw) > maxHello || !bytes.HasPrefix(sent, h.raw) || conn.wrote {
			t.Fatalf("%d bytes were kept of %d, wrote %v", len(h.raw), len(sent), conn.wrote)
		}
		if err == nil && (h.serverName == "" || !isName(h.serverName)) {
			t.Fatalf("accepted %q", h.serverName)
		}
	})
}
