package health

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Kind is the protocol of a check.
type Kind string

const (
	// TCP opens a connection.
	TCP Kind = "tcp"
	// HTTP requests a path; 2xx and 3xx are good unless Expect lists others.
	HTTP Kind = "http"
	// GRPC calls grpc.health.v1.Health/Check; SERVING is good.
	GRPC Kind = "grpc"
)

// Check defines the request of a probe and its frequency. Its zero fields have defaults,
// except Kind and Address. Checks can be compared with ==.
type Check struct {
	Kind Kind
	// Address is the address of the service, host:port.
	Address string
	// Path is the path that an http check requests, including a query. Default "/".
	Path string
	// Host is the Host header of an http check. Default: Address.
	Host string
	// Method is the method of an http check: GET, HEAD, OPTIONS or POST, without a body. Default GET.
	Method string
	// Header are further fields of an http check, a line "Name: value" for each; see WithHeader.
	Header string
	// Expect lists the statuses of an http check that are good, such as "200,204,300-399".
	// Default "200-399".
	Expect string
	// TLS begins each probe with TLS and the ALPN protocol h2, for a service with h2; an http
	// check then asks over HTTP/2. ServerName and ServiceRoots are those of upstream.ServiceTLS.
	TLS          bool
	ServerName   string
	ServiceRoots *x509.CertPool
	// HTTP2 makes an http check ask over HTTP/2 in clear text, for a service with h2c.
	HTTP2 bool
	// Service is the name in the request of a grpc check. Empty: the server as a whole.
	Service string
	// Interval is the time from the start of one probe to the start of the next, less up to
	// 10 % at random, so that many checks do not synchronize; 10 ms to 1 h. Default 2 s.
	Interval time.Duration
	// Timeout limits one probe as a whole; 1 ms to Interval, so that a hung service cannot
	// reduce the frequency of probes. Default 1 s, or Interval if shorter.
	Timeout time.Duration
	// Rise is how many successes in a row make a service healthy that was healthy before.
	// At the start one success is enough. 1 to 100, default 2.
	Rise int
	// Fall is how many failures in a row make a healthy service unhealthy; 1 to 100.
	// Default 3: a single lost packet must not remove a worker.
	Fall int
	// StartGrace is how long a service may take to start: until the first success, failures
	// within this time give no verdict, and probes start every 200 ms so that the service
	// is offered soon. Up to 1 h; negative means none. Default 10 s.
	StartGrace time.Duration
}

// Normalize sets the defaults and reports all problems together. It does not change a Check
// that it returned.
func (c Check) Normalize() (Check, error) {
	c = c.withDefaults()
	if problems := append(c.addressProblems(), c.problems()...); len(problems) > 0 {
		return c, fmt.Errorf("health check: %w", errors.New(strings.Join(problems, "; ")))
	}
	return c, nil
}

func (c Check) withDefaults() Check {
	if c.Kind == HTTP {
		c.Path = cmp.Or(c.Path, "/")
		c.Host = cmp.Or(c.Host, c.Address)
		c.Method, c.Expect = cmp.Or(c.Method, http.MethodGet), cmp.Or(c.Expect, defaultExpect)
	}
	c.Interval = cmp.Or(c.Interval, 2*time.Second)
	c.Timeout = cmp.Or(c.Timeout, min(time.Second, c.Interval))
	c.Rise = cmp.Or(c.Rise, 2)
	c.Fall = cmp.Or(c.Fall, 3)
	c.StartGrace = cmp.Or(c.StartGrace, 10*time.Second)
	return c
}

func (c Check) addressProblems() []string {
	host, port, err := net.SplitHostPort(c.Address)
	number, badPort := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || badPort != nil || number == 0 || !httpguts.ValidHostHeader(c.Address) {
		return []string{fmt.Sprintf("address %.80q: want host:port with a port from 1 to 65535", c.Address)}
	}
	return nil
}

// problems returns those of every field except the address.
func (c Check) problems() (problems []string) {
	require := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	switch c.Kind {
	case TCP, HTTP, GRPC:
	default:
		require(false, "kind %.80q: want tcp, http or grpc", c.Kind)
	}
	require(c.Kind == HTTP || c.Path == "", "path %.80q: only an http check has one", c.Path)
	require(c.Kind == HTTP || c.Host == "", "host %.80q: only an http check has one", c.Host)
	require(c.Kind == HTTP || c.Method == "" && c.Header == "" && c.Expect == "", "method, header and expect: only an http check has them")
	require(c.Kind != HTTP || slices.Contains(methods, c.Method), "method %.20q: want %s", c.Method, strings.Join(methods, ", "))
	if problem := c.headerProblem(); problem != "" {
		problems = append(problems, problem)
	}
	if c.Kind == HTTP {
		_, err := parseExpect(c.Expect)
		require(err == nil, "expect %.80q: %v; write statuses and ranges such as 200,204,300-399", c.Expect, err)
	}
	require(c.Kind == GRPC || c.Service == "", "service %.80q: only a grpc check has one", c.Service)
	require(c.Path == "" || validPath(c.Path), "path %.80q: want a path from the root such as /healthz, without spaces, at most 1024 bytes", c.Path)
	require(httpguts.ValidHostHeader(c.Host) && len(c.Host) <= 260, "host %.80q: want a host name, with a port or without", c.Host)
	require(utf8.ValidString(c.Service) && len(c.Service) <= 255, "service %.80q: want UTF-8 of at most 255 bytes", c.Service)
	require(10*time.Millisecond <= c.Interval && c.Interval <= time.Hour, "interval %v: want 10ms to 1h", c.Interval)
	require(time.Millisecond <= c.Timeout && c.Timeout <= c.Interval, "timeout %v: want 1ms to the interval, which is %v", c.Timeout, c.Interval)
	require(1 <= c.Rise && c.Rise <= 100, "rise %d: want 1 to 100", c.Rise)
	require(1 <= c.Fall && c.Fall <= 100, "fall %d: want 1 to 100", c.Fall)
	require(c.StartGrace <= time.Hour, "grace %v: want at most 1h, 0s for none", c.StartGrace)
	return problems
}

func validPath(path string) bool {
	for i := range len(path) {
		if path[i] <= ' ' || path[i] >= 0x7f {
			return false
		}
	}
	_, err := url.ParseRequestURI(path)
	return err == nil && path[0] == '/' && len(path) <= 1024
}

// noGrace is StartGrace for grace=0s, because the zero value means the default.
const noGrace time.Duration = -1

// ParseCheck reads a check without its address, which the caller fills in:
//
//	tcp
//	http:/healthz;host=example.org
//	grpc:chat.Chat;interval=2s;timeout=1s;rise=2;fall=3;grace=10s
//
// Options that are not given have their defaults, also in the returned Check. A value of 0
// is refused, except for grace, where it means none.
func ParseCheck(text string) (Check, error) {
	head, options, _ := strings.Cut(strings.TrimSpace(text), ";")
	kind, target, _ := strings.Cut(head, ":")
	c := Check{Kind: Kind(kind)}
	var problems []string
	switch c.Kind {
	case HTTP:
		c.Path = target
	case GRPC:
		c.Service = target
	default:
		if target != "" {
			problems = append(problems, fmt.Sprintf("%.80q after the kind: only http and grpc take something there", target))
		}
	}
	for option := range strings.SplitSeq(options, ";") {
		if option = strings.TrimSpace(option); option == "" {
			continue
		}
		key, value, _ := strings.Cut(option, "=")
		if err := c.set(key, value); err != nil {
			problems = append(problems, err.Error())
		}
	}
	c = c.withDefaults()
	if problems = append(problems, c.problems()...); len(problems) > 0 {
		return Check{}, fmt.Errorf("health check %.200q: %s; write tcp, http:/path or grpc:service, with options: http:/healthz;interval=2s;timeout=1s;rise=2;fall=3;grace=10s",
			head, strings.Join(problems, "; ")) // not the options, of which a header may have a credential
	}
	return c, nil
}

func (c *Check) set(key, value string) (err error) {
	duration := func(to *time.Duration) {
		if *to, err = time.ParseDuration(value); err != nil {
			err = fmt.Errorf("%s %.80q is not a duration such as 500ms or 2s", key, value)
		} else if *to < 0 || *to == 0 && key != "grace" {
			err = fmt.Errorf("%s %.80q: want more than 0, or 0s for no grace", key, value)
		}
	}
	number := func(to *int) {
		if *to, err = strconv.Atoi(value); err != nil {
			err = fmt.Errorf("%s %.80q is not a number", key, value)
		} else if *to == 0 {
			err = fmt.Errorf("%s 0: want 1 to 100", key)
		}
	}
	switch key {
	case "host":
		c.Host = value
	case "method":
		if c.Method = strings.ToUpper(value); value == "" {
			err = fmt.Errorf("method is empty: want %s", strings.Join(methods, ", "))
		}
	case "header":
		name, text, found := strings.Cut(value, ":")
		if !found || strings.ContainsAny(value, "\r\n") {
			name, _, _ = strings.Cut(name, " ") // what follows may be a credential
			return fmt.Errorf("header %.80q: want NAME:VALUE", name)
		}
		*c = c.WithHeader(name, text)
	case "expect":
		if c.Expect = value; value == "" {
			err = errors.New("expect is empty: write statuses and ranges such as 200,204,300-399")
		}
	case "interval":
		duration(&c.Interval)
	case "timeout":
		duration(&c.Timeout)
	case "rise":
		number(&c.Rise)
	case "fall":
		number(&c.Fall)
	case "grace":
		if duration(&c.StartGrace); c.StartGrace == 0 {
			c.StartGrace = noGrace
		}
	default:
		err = fmt.Errorf("unknown option %.80q, allowed are host, method, header, expect, interval, timeout, rise, fall, grace", key)
	}
	return err
}
