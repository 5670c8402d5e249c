package proxyprotocol_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pires/go-proxyproto"
	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/relay/proxyprotocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// v2 is a header of version 2.
func v2(command, family byte, addresses []byte) string {
	length := binary.BigEndian.AppendUint16(nil, uint16(len(addresses)))
	return signature + string([]byte{command, family}) + string(length) + string(addresses)
}

var (
	ipv4 = []byte{198, 51, 100, 7, 192, 0, 2, 1, 0x30, 0x39, 0, 80}
	ipv6 = append(netip.MustParseAddr("2001:db8::7").AsSlice(), append(netip.MustParseAddr("2001:db8::1").AsSlice(), 0x30, 0x39, 0, 80)...)
	unix = make([]byte, 216)
)

// cases are headers, the addresses in them, and whether they are read.
var cases = []struct {
	name, header, client string
	err                  error
}{
	{"TCP4", "PROXY TCP4 198.51.100.7 192.0.2.1 12345 80\r\n", "198.51.100.7:12345", nil},
	{"TCP6", "PROXY TCP6 2001:db8::7 2001:db8::1 12345 80\r\n", "[2001:db8::7]:12345", nil},
	{"TCP6 of an IPv4 address", "PROXY TCP6 ::ffff:198.51.100.7 2001:db8::1 12345 80\r\n", "198.51.100.7:12345", nil},
	{"UNKNOWN", "PROXY UNKNOWN\r\n", "", nil},
	{"UNKNOWN with the longest text", "PROXY UNKNOWN " + strings.Repeat("f", 91) + "\r\n", "", nil},
	{"version 2, IPv4", v2(0x21, 0x11, ipv4), "198.51.100.7:12345", nil},
	{"version 2, IPv6", v2(0x21, 0x21, ipv6), "[2001:db8::7]:12345", nil},
	{"version 2 with more fields", v2(0x21, 0x11, append(bytes.Clone(ipv4), 4, 0, 2, 0, 0)), "198.51.100.7:12345", nil},
	{"version 2, LOCAL", v2(0x20, 0, nil), "", nil},
	{"version 2, LOCAL with an address", v2(0x20, 0x11, ipv4), "", nil},
	{"version 2 without an address", v2(0x21, 0, nil), "", nil},
	{"version 2, UNIX", v2(0x21, 0x31, unix), "", nil},
	{"version 2, UDP", v2(0x21, 0x12, ipv4), "", nil},
	{"version 2, the longest", v2(0x21, 0x11, append(bytes.Clone(ipv4), make([]byte, 2036)...)), "198.51.100.7:12345", nil},

	{"HTTP", "GET / HTTP/1.1\r\n\r\n", "", proxyprotocol.ErrMissing},
	{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", proxyprotocol.ErrMissing},
	{"TLS", "\x16\x03\x01\x02\x00\x01", "", proxyprotocol.ErrMissing},
	{"almost version 1", "PROXYTCP4 198.51.100.7 192.0.2.1 1 2\r\n", "", proxyprotocol.ErrMissing},
	{"almost version 2", "\r\n\r\n\x00\r\nQUIET", "", proxyprotocol.ErrMissing},
	{"one byte too long", "PROXY UNKNOWN " + strings.Repeat("f", 92) + "\r\n", "", proxyprotocol.ErrMalformed},
	{"without an end", "PROXY TCP4 " + strings.Repeat("1", 1000), "", proxyprotocol.ErrMalformed},
	{"only LF", "PROXY TCP4 198.51.100.7 192.0.2.1 12345 80\n", "", proxyprotocol.ErrMalformed},
	{"a name", "PROXY TCP4 localhost 192.0.2.1 12345 80\r\n", "", proxyprotocol.ErrMalformed},
	{"another family", "PROXY TCP4 2001:db8::7 2001:db8::1 12345 80\r\n", "", proxyprotocol.ErrMalformed},
	{"a zone", "PROXY TCP6 fe80::1%eth0 2001:db8::1 12345 80\r\n", "", proxyprotocol.ErrMalformed},
	{"a port too large", "PROXY TCP4 198.51.100.7 192.0.2.1 65536 80\r\n", "", proxyprotocol.ErrMalformed},
	{"a field too many", "PROXY TCP4 198.51.100.7 192.0.2.1 12345 80 7\r\n", "", proxyprotocol.ErrMalformed},
	{"the address of none", "PROXY TCP4 0.0.0.0 192.0.2.1 12345 80\r\n", "", proxyprotocol.ErrMalformed},
	{"UDP4", "PROXY UDP4 198.51.100.7 192.0.2.1 12345 80\r\n", "", proxyprotocol.ErrMalformed},
	{"version 3", v2(0x31, 0x11, ipv4), "", proxyprotocol.ErrMalformed},
	{"an unknown command", v2(0x22, 0x11, ipv4), "", proxyprotocol.ErrMalformed},
	{"an unknown family", v2(0x21, 0x13, ipv4), "", proxyprotocol.ErrMalformed},
	{"an address too short", v2(0x21, 0x11, ipv4[:11]), "", proxyprotocol.ErrMalformed},
	{"one byte too long in version 2", v2(0x21, 0x11, make([]byte, 2049)), "", proxyprotocol.ErrMalformed},
	{"nothing", "", "", io.ErrUnexpectedEOF},
	{"a part", "PROXY TCP4 198.51.100.7 192.0", "", io.ErrUnexpectedEOF},
	{"a part of version 2", v2(0x21, 0x11, ipv4)[:20], "", io.ErrUnexpectedEOF},
}

func TestAHeaderIsReadToItsEndAndNotAByteFurther(t *testing.T) {
	const rest = "GET / HTTP/1.1\r\n"
	for _, c := range cases {
		for how, reader := range map[string]func(io.Reader) io.Reader{"in one read": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
			follows := rest
			if c.err != nil {
				follows = ""
			}
			in := strings.NewReader(c.header + follows)
			client, err := proxyprotocol.Read(reader(in))
			if !errors.Is(err, c.err) || err == nil && in.Len() != len(rest) {
				t.Errorf("%s, %s: %v, %d bytes are left", c.name, how, err, in.Len())
			}
			if got := fmt.Sprint(client); client.IsValid() && got != c.client || !client.IsValid() && c.client != "" {
				t.Errorf("%s, %s: %s, want %q", c.name, how, got, c.client)
			}
		}
	}
}

// FuzzRead holds what is read against a header that the library writes for the same address.
func FuzzRead(f *testing.F) {
	for _, c := range cases {
		f.Add([]byte(c.header))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		client, err := proxyprotocol.Read(r)
		if read := len(in) - r.Len(); read > 2064 {
			t.Fatalf("%d bytes were read", read)
		}
		if err != nil {
			if client.IsValid() {
				t.Fatalf("%v in spite of %v", client, err)
			}
			return
		}
		if !client.IsValid() {
			return
		}
		own := net.TCPAddrFromAddrPort(client)
		for version := range 2 {
			text, err := proxyproto.HeaderProxyFromAddrs(byte(version+1), own, own).Format()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := proxyprotocol.Read(bytes.NewReader(text)); err != nil || again != client {
				t.Fatalf("%v in version %d: %v, %v", client, version+1, again, err)
			}
		}
	})
}

func ExampleRead() {
	connection := strings.NewReader("PROXY TCP4 198.51.100.7 192.0.2.1 12345 80\r\nGET / HTTP/1.1\r\n")
	client, err := proxyprotocol.Read(connection)
	rest, _ := io.ReadAll(connection)
	fmt.Printf("%s %v %q\n", client, err, rest)
	// Output: 198.51.100.7:12345 <nil> "GET / HTTP/1.1\r\n"
}
