package health

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Kind is how a service is asked.
type Kind string

const (
	// TCP opens a connection.
	TCP Kind = "tcp"
	// HTTP asks for a path; 2xx and 3xx are good.
	HTTP Kind = "http"
	// GRPC calls grpc.health.v1.Health/Check; SERVING is good.
	GRPC Kind = "grpc"
)

// Check says what is asked and how often. Its zero fields have defaults, except
// Kind and Address. Checks can be compared with ==.
type Check struct {
	Kind Kind
	// Address is where the service listens, host:port.
	Address string
	// Path is what an http check asks for, a query included. Default "/".
	Path string
	// Host is the Host header of an http check. Default: Address.
	Host string
	// Service is the name that a grpc check asks for. Empty: the server as a whole.
	Service string
	// Interval is the time from the start of one probe to the start of the next,
	// less up to 10 % at random, so that many checks do not fall into step; 10 ms
	// to 1 h. Default 2 s.
	Interval time.Duration
	// Timeout bounds one probe as a whole; 1 ms to Interval, so that a hung
	// service cannot make the probes rarer. Default 1 s, or Interval if shorter.
	Timeout time.Duration
	// Rise is how many successes in a row make a service healthy that was healthy
	// before; its first success suffices at the start. 1 to 100, default 2.
	Rise int
	// Fall is how many failures in a row make a healthy service unhealthy; 1 to
	// 100. Default 3: a single lost packet must not cost a worker.
	Fall int
	// StartGrace is how long a service may take to start: while it never succeeded,
	// failures within this time give no verdict, and probes start every 200 ms so
	// that it is offered soon. Up to 1 h; negative means none. Default 10 s.
	StartGrace time.Duration
}

// Normalize fills in the defaults and reports every problem at once. It changes
// nothing in a Check that it returned.
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

// problems are those of every field but the address.
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
