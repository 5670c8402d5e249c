package worker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringway/ringway/advertise"
)

func TestAServiceIsWrittenAsNameAddressAndOptions(t *testing.T) {
	for text, want := range map[string]advertise.Service{
		"echo=127.0.0.1:9000": {Name: "echo", Address: "127.0.0.1:9000", Protocol: advertise.HTTP1, Weight: 10, State: advertise.Ready},
		"echo=:9000":          {Name: "echo", Address: "127.0.0.1:9000", Protocol: advertise.HTTP1, Weight: 10, State: advertise.Ready},
		" echo = h:1 ":        {Name: "echo", Address: "h:1", Protocol: advertise.HTTP1, Weight: 10, State: advertise.Ready},
		"chat=[::1]:9000;protocol=h2c;weight=20;slots=100;version=v2;tag=gpu;tag=blue": {
			Name: "chat", Address: "[::1]:9000", Protocol: advertise.H2C, Weight: 20, Slots: 100, Version: "v2", Tags: []string{"gpu", "blue"}, State: advertise.Ready},
		"a=h:1;selection=ordered:preferred=w2+w1":            {Name: "a", Address: "h:1", Protocol: advertise.HTTP1, Weight: 10, Selection: "ordered;preferred=w2,w1", State: advertise.Ready},
		"a=h:1;selection=slots:vnodes=16:samples=3;relays=0": {Name: "a", Address: "h:1", Protocol: advertise.HTTP1, Weight: 10, Selection: "slots;vnodes=16;samples=3", State: advertise.Ready},
	} {
		got, err := ParseService(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got.Service); diff != "" || got.Checked() || got.Source != FromSettings {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestAnHTTPCheckUsesTheProtocolOfItsService(t *testing.T) {
	for text, want := range map[string]struct{ tls, http2 bool }{
		"a=h:1;check=http:/":              {},
		"a=h:1;protocol=tcp;check=http:/": {},
		"a=h:1;protocol=h2c;check=http:/": {http2: true},
		"a=h:1;protocol=h2c;check=grpc":   {}, // always over HTTP/2
		"a=h:1;protocol=h2;check=http:/":  {tls: true},
	} {
		s, err := ParseService(text)
		if err != nil || s.Check.TLS != want.tls || s.Check.HTTP2 != want.http2 {
			t.Errorf("%s: TLS %v, HTTP/2 %v, %v", text, s.Check.TLS, s.Check.HTTP2, err)
		}
	}
}

func TestAServiceThatCannotWorkIsRefusedWithItsReason(t *testing.T) {
	for text, want := range map[string]string{
		"echo":                                  "no '='",
		"echo=9000":                             "address",
		"=h:1":                                  "service name",
		"echo=h:0":                              "port",
		"echo=h:1;protocl=h2c":                  `unknown option "protocl", did you mean protocol?`,
		"echo=h:1;weight=101":                   "weight 101",
		"echo=h:1;weight=0":                     "weight 0: want 1 to 100",
		"echo=h:1;selection=":                   "selection is empty",
		"echo=h:1;protocol=tcp;proxy-protocol=": `proxy-protocol "": want v2`,
		"echo=h:1;protocol=tcp;proxy-protocol=v1": `proxy-protocol "v1": want v2`,
		"echo=h:1;proxy-protocol=v2":              "want protocol tcp",
		"echo=h:1;protocol=h2;server-name=":       "server-name is empty",
		"echo=h:1;protocol=h2;server-name=a b":    "no host name and no IP address",
		"echo=h:1;protocol=h2c;server-name=a":     "only a service with protocol h2",
		"echo=h:1;selection=bogus":                `invalid strategy: "bogus"`,
		"echo=h:1;selection=manual":               "at least one node in preferred",
		"echo=h:1;selection=stable:vnodes=3":      `takes no parameter "vnodes"`,
		"echo=h:1;weight=many":                    `weight "many" is not a number`,
		"echo=h:1;protocol=gopher":                "protocol",
		"echo=h:1;colour=red":                     `unknown option "colour", allowed are protocol, weight`,
		"echo=h:1;relays=few":                     `relays "few" is not a number`,
		"echo=h:1;fall=3":                         "fall=3 belongs to a check, and there is none: add check=",
		"echo=h:1;check=gopher":                   `kind "gopher"`,
		"echo=h:1;check=tcp;fall=":                "fall",
		"echo=h:1;check=":                         "check is empty",
	} {
		_, err := ParseService(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write name=host:port") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseService(f *testing.F) {
	f.Add("echo=127.0.0.1:9000;weight=20")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseService(text)
		if err != nil {
			return
		}
		if again, err := s.Normalize(); err != nil || again.Name != s.Name {
			t.Fatalf("%q gave %+v, which is refused: %v", text, s, err)
		}
	})
}
