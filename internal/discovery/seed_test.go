package discovery

import (
	"net/netip"
	"strings"
	"testing"
)

func TestEveryFormOfSeedIsUnderstood(t *testing.T) {
	ap := netip.MustParseAddrPort
	for text, want := range map[string]Seed{
		"10.0.0.1":                 {Kind: kindAddr, Addr: ap("10.0.0.1:9000")},
		"10.0.0.1:7401":            {Kind: kindAddr, Addr: ap("10.0.0.1:7401")},
		"::1":                      {Kind: kindAddr, Addr: ap("[::1]:9000")},
		"[::1]":                    {Kind: kindAddr, Addr: ap("[::1]:9000")},
		"[2001:db8::5]:7401":       {Kind: kindAddr, Addr: ap("[2001:db8::5]:7401")},
		"[::ffff:10.0.0.1]:7401":   {Kind: kindAddr, Addr: ap("10.0.0.1:7401")},
		"Relay-1":                  {Kind: kindHost, Name: "relay-1", Port: 9000},
		"relay.example.com:7401":   {Kind: kindHost, Name: "relay.example.com", Port: 7401},
		"relay.example.com.:7401":  {Kind: kindHost, Name: "relay.example.com.", Port: 7401},
		"dns+relay.example.com":    {Kind: kindHost, Name: "relay.example.com", Port: 9000},
		"dns+relay:7402":           {Kind: kindHost, Name: "relay", Port: 7402},
		"srv+_gossip._udp.Relay.x": {Kind: kindService, Name: "_gossip._udp.relay.x"},
		"srv+_gossip._tcp.relay":   {Kind: kindService, Name: "_gossip._tcp.relay"},
	} {
		if got, err := ParseSeed(text, 9000); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestTheErrorOfABadSeedNamesTheFault(t *testing.T) {
	long := strings.Repeat("a", 64)
	for text, want := range map[string]string{
		"":                           "the host is missing",
		":7400":                      "the host is missing",
		"dns+":                       "the host is missing",
		"relay:":                     "allowed are 1 to 65535",
		"relay:0":                    "allowed are 1 to 65535",
		"relay:65536":                "allowed are 1 to 65535",
		"relay:gossip":               "allowed are 1 to 65535",
		"a:b:c":                      "give host, host:port",
		"http://relay":               "allowed are 1 to 65535",
		"relay one":                  `' ' is not allowed`,
		"relay\x00":                  `'\x00' is not allowed`,
		"rel..ay":                    "an empty label",
		"-relay":                     "begins or ends with '-'",
		long:                         "at most 63",
		strings.Repeat("abcd.", 51):  "at most 253",
		"10.0.0.256":                 "neither an IP address nor a host name",
		"dns+10.0.0.1":               "dns+ takes a name",
		"0.0.0.0:7400":               "no host has this address",
		"224.0.0.1":                  "no host has this address",
		"[fe80::1%eth0]:7400":        "an address with a zone",
		"[relay]:7400":               "[address]:port",
		"srv+_gossip._udp.relay:123": "an SRV seed has no port",
		"srv+relay":                  "written _gossip._udp.name",
		"srv+_gossip._udp":           "written _gossip._udp.name",
		"srv+_gossip._sctp.relay":    "written _gossip._udp.name",
		"_gossip._udp.relay":         "write srv+ in front",
	} {
		if got, err := ParseSeed(text, 9000); err == nil || !strings.Contains(err.Error(), want) || got != (Seed{}) {
			t.Errorf("%.40q: got %+v, %v; want an error with %q", text, got, err, want)
		} else if len(text) < 100 && !strings.Contains(err.Error(), "seed ") {
			t.Errorf("%q: the error does not name the seed: %v", text, err)
		}
	}
	if _, err := ParseSeed("relay", 0); err == nil || !strings.Contains(err.Error(), "the port is missing") {
		t.Errorf("without a default port: %v", err)
	}
}

func FuzzParseSeed(f *testing.F) {
	for _, s := range []string{"relay", "relay:1", "10.0.0.1", "[::1]:7400", "dns+a.b", "srv+_g._udp.a", "[", "]:1", "a:b:c", "::ffff:1.2.3.4", "fe80::1%x"} {
		f.Add(s, uint16(7400))
	}
	f.Fuzz(func(t *testing.T, text string, port uint16) {
		seed, err := ParseSeed(text, port)
		if err != nil {
			if seed != (Seed{}) {
				t.Fatalf("%q: an error and a seed", text)
			}
			return
		}
		again, err := ParseSeed(seed.String(), 0)
		if err != nil || again != seed {
			t.Fatalf("%q became %q, which becomes %+v, %v", text, seed, again, err)
		}
		if seed.Kind == kindAddr && seed.Addr.Port() == 0 || seed.Kind == kindHost && seed.Port == 0 {
			t.Fatalf("%q: no port", text)
		}
	})
}
