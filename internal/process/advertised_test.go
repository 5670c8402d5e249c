package process

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/discovery"
)

func TestTheAddressThatAMemberAnnounces(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("10.0.0.9 relay-1.example\n10.0.0.7 relay-1.example\nfd00::1 relay-1.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolver, err := discovery.NewResolver(discovery.ResolverConfig{HostsFile: hosts, Servers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	private := func() (string, error) { return "192.168.1.5", nil }
	for _, test := range []struct {
		bind, advertise string
		private         func() (string, error)
		want            string // an address, or a part of the error
		reach           string
	}{
		{"10.0.0.1:7400", "", private, "", "10.0.0.1:7400"},
		{":7400", "", private, "192.168.1.5:7400", ""},
		{"[::]:7500", "", private, "192.168.1.5:7500", ""},
		{":7400", "", func() (string, error) { return "", nil }, "this host has no private address", ""},
		{":7400", "", func() (string, error) { return "", errors.New("no interfaces") }, "the addresses of this host cannot be read: no interfaces", ""},
		{":7400", "10.0.0.2:7600", private, "10.0.0.2:7600", "10.0.0.2:7600"},
		{":7401", "10.0.0.2", private, "10.0.0.2:7401", "10.0.0.2:7401"},
		{":7401", "fd00::2", private, "[fd00::2]:7401", "[fd00::2]:7401"},
		{":7401", "relay-1.example", private, "10.0.0.7:7401", ""},
		{":7401", "relay-1.example:7600", private, "10.0.0.7:7600", ""},
		{":7401", "absent.example", private, "correct the name, or give an IP address", ""},
		{":7401", "0.0.0.0", private, "no other host can reach this address", ""},
	} {
		s := Settings{GossipAddr: test.bind, AdvertiseAddr: test.advertise, privateIP: test.private}
		bind, err := ListenAddr(test.bind)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.advertised(bind, resolver)
		if _, isAddress := netip.ParseAddrPort(test.want); test.want == "" || isAddress == nil {
			if err != nil || got != test.want {
				t.Errorf("%s, %q: announced %q (%v), want %q", test.bind, test.advertise, got, err, test.want)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %q: announced %q (%v), want %q in the error", test.bind, test.advertise, got, err, test.want)
		}
		if got := s.GossipReach(); got != test.reach {
			t.Errorf("%s, %q: reach %q, want %q", test.bind, test.advertise, got, test.reach)
		}
	}
}
