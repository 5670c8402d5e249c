package routing

import "testing"

// A service may use another address of the host with the same port.
func TestOnlyTheAddressesThatReachAListenerAreItsOwn(t *testing.T) {
	for _, c := range []struct {
		listener, address string
		want              bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "[::ffff:127.0.0.1]:80", true},
		{"127.0.0.1:80", "0.0.0.0:80", true},
		{"127.0.0.1:80", "[::]:80", true},
		{"127.0.0.1:80", "192.0.2.7:80", false},
		{"10.1.2.3:80", "192.0.2.7:80", true}, // a name of the host
		{"0.0.0.0:80", "192.0.2.7:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "[::1]:80", false},
		{"127.0.0.1:80", "198.51.100.1:80", false},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{"127.0.0.2:80", "127.0.0.1:80", false},
		{"0.0.0.0:80", "127.0.0.2:80", true},
		{"0.0.0.0:80", "[::1]:80", false},
		{"[::]:80", "127.0.0.2:80", true},
		{"[::]:80", "[::1]:80", true},
		{"[::]:80", "198.51.100.1:80", false},
		{"10.1.2.3:80", "0.0.0.0:80", false},
		{"127.0.0.1:80", "localhost:80", false}, // at the dial
	} {
		if got := newOwnListeners([]string{c.listener}, []string{"192.0.2.7:7400"}).listens(c.address); got != c.want {
			t.Errorf("a connection to %s reaches a listener at %s: %v", c.address, c.listener, got)
		}
	}
}
