package upstream

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/http"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/ringway/ringway/internal/wire"
)

func TestTheProxyHeaderHasTheAddressesOfTheClientsConnection(t *testing.T) {
	const signature = "0d0a0d0a000d0a515549540a"
	for _, c := range []struct{ connection, want string }{
		{"192.0.2.1:4660 198.51.100.2:443", "2111000c" + "c0000201" + "c6336402" + "1234" + "01bb"},
		{"[::ffff:192.0.2.1]:4660 198.51.100.2:443", "2111000c" + "c0000201" + "c6336402" + "1234" + "01bb"},
		{"[2001:db8::1]:4660 [2001:db8::2%eth0]:443", "21210024" + "20010db8000000000000000000000001" + "20010db8000000000000000000000002" + "1234" + "01bb"},
		{"192.0.2.1:4660 [2001:db8::2]:443", "21210024" + "00000000000000000000ffffc0000201" + "20010db8000000000000000000000002" + "1234" + "01bb"},
		{"", "20000000"}, {"192.0.2.1:4660", "20000000"}, {"client relay", "20000000"},
	} {
		r := &http.Request{Header: http.Header{}}
		if c.connection != "" {
			r.Header[wire.ConnectionHeader] = []string{c.connection}
		}
		if got := hex.EncodeToString(proxyHeader(r)); got != signature+c.want {
			t.Errorf("%q: %s, want %s", c.connection, got, signature+c.want)
		}
	}
}

// The library that reads such headers at relays writes the same.
func FuzzProxyHeader(f *testing.F) {
	f.Add("192.0.2.1:4660 198.51.100.2:443")
	f.Add("[2001:db8::1]:4660 [2001:db8::2]:443")
	f.Add("[2001:db8::1]:4660 198.51.100.2:443")
	f.Fuzz(func(t *testing.T, connection string) {
		r := &http.Request{Header: http.Header{wire.ConnectionHeader: {connection}}}
		var client, local net.Addr
		if from, to, ok := connectionOf(r); ok {
			client, local = net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
		}
		want, err := proxyproto.HeaderProxyFromAddrs(2, client, local).Format()
		if got := proxyHeader(r); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q, %v", got, want, err)
		}
	})
}
