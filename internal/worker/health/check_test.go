package health

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestACheckIsWrittenAsKindTargetAndOptions(t *testing.T) {
	for text, want := range map[string]Check{
		"tcp":                                  {Kind: TCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second},
		"http":                                 {Kind: HTTP, Path: "/", Method: "GET", Expect: "200-399", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second},
		" http:/healthz?full=1; host=a.b:80 ;": {Kind: HTTP, Path: "/healthz?full=1", Host: "a.b:80", Method: "GET", Expect: "200-399", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second},
		"grpc":                                 {Kind: GRPC, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second},
		"grpc:chat.Chat;interval=500ms;timeout=100ms;rise=1;fall=5;grace=1m": {Kind: GRPC, Service: "chat.Chat",
			Interval: 500 * time.Millisecond, Timeout: 100 * time.Millisecond, Rise: 1, Fall: 5, StartGrace: time.Minute},
		"tcp;interval=300ms": {Kind: TCP, Interval: 300 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 3, StartGrace: 10 * time.Second},
		"tcp;grace=0s":       {Kind: TCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: noGrace},
	} {
		got, err := ParseCheck(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestACheckThatCannotWorkIsRefusedWithItsReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      `kind "": want tcp, http or grpc`,
		"icmp":                                  `kind "icmp"`,
		"tcp:80":                                `"80" after the kind`,
		"tcp;host=a":                            `host "a": only an http check has one`,
		"http:healthz":                          `path "healthz"`,
		"http:/a b":                             `path "/a b"`,
		"http:/%zz":                             `path "/%zz"`,
		"http:/;host=a b":                       `host "a b"`,
		"http:/\r\nX: y":                        "path",
		"http:/" + strings.Repeat("x", 1024):    "at most 1024 bytes",
		"http;host=" + strings.Repeat("x", 261): "want a host name",
		"grpc:" + strings.Repeat("x", 256):      "at most 255 bytes",
		"grpc:\xff":                             "want UTF-8",
		"tcp;interval=2":                        `interval "2" is not a duration`,
		"tcp;interval=0s":                       `interval "0s": want more than 0`,
		"tcp;interval=1ms":                      "interval 1ms: want 10ms to 1h",
		"tcp;interval=2h":                       "interval 2h0m0s: want 10ms to 1h",
		"tcp;timeout=0s":                        `timeout "0s": want more than 0`,
		"tcp;timeout=3s":                        "timeout 3s: want 1ms to the interval, which is 2s",
		"tcp;rise=0":                            "rise 0: want 1 to 100",
		"tcp;fall=101":                          "fall 101: want 1 to 100",
		"tcp;fall=many":                         `fall "many" is not a number`,
		"tcp;grace=-1s":                         `grace "-1s": want more than 0`,
		"tcp;grace=2h":                          "grace 2h0m0s: want at most 1h",
		"tcp;colour=red":                        `unknown option "colour"`,
		"http:x;interval=0s;rise=0;y=1;":        `unknown option "y"`,
	} {
		_, err := ParseCheck(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write tcp, http:/path or grpc:service") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestEveryProblemIsReportedInOneError(t *testing.T) {
	_, parsed := ParseCheck("http:x;interval=0s;rise=0;fall=101;colour=red")
	_, normalized := Check{Kind: "icmp", Address: "h", Path: "x", Host: " ", Service: "s", Interval: 1, Timeout: -1, Rise: -1, Fall: -1, StartGrace: 2 * time.Hour}.Normalize()
	for _, test := range []struct {
		err   error
		wants []string
	}{
		{parsed, []string{"path", "interval", "rise", "fall", "colour"}},
		{normalized, []string{"kind", "address", "path", "host", "service", "interval", "timeout", "rise", "fall", "grace"}},
	} {
		for _, want := range test.wants {
			if test.err == nil || !strings.Contains(test.err.Error(), want) {
				t.Errorf("%v does not speak of %s", test.err, want)
			}
		}
	}
}

func TestAnAddressIsAHostAndAPort(t *testing.T) {
	for address, valid := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:65535": true, "[fe80::1%eth0]:80": true, "localhost:1": true,
		"": false, "h": false, ":80": false, "h:": false, "h:0": false, "h:65536": false, "h:http": false, "::1:80": false, "a b:80": false,
	} {
		if _, err := (Check{Kind: TCP, Address: address}).Normalize(); (err == nil) != valid {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestTheAddressIsTheHostUnlessOneIsGiven(t *testing.T) {
	c, err := ParseCheck("http")
	if err != nil {
		t.Fatal(err)
	}
	c.Address = "10.0.0.5:9000"
	if c, err = c.Normalize(); err != nil || c.Host != c.Address {
		t.Errorf("host %q, %v", c.Host, err)
	}
}

func FuzzParseCheck(f *testing.F) {
	f.Add("tcp;grace=0s")
	f.Add("http:/healthz?a=b;host=h;timeout=1s")
	f.Add("grpc:chat.Chat;interval=500ms;timeout=100ms;rise=1;fall=5;grace=1m")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseCheck(text)
		if err != nil {
			return
		}
		parsed.Address = "127.0.0.1:1"
		once, err := parsed.Normalize()
		if err != nil {
			t.Fatalf("%q gave %+v, which is refused: %v", text, parsed, err)
		}
		if twice, err := once.Normalize(); err != nil || twice != once {
			t.Fatalf("%q: %+v became %+v, %v", text, once, twice, err)
		}
	})
}
