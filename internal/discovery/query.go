package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// udpSize is the largest UDP answer that queries allow: it crosses every network without
// fragmentation (DNS flag day 2020).
const udpSize = 1232

// noSuchName is an authoritative negative answer: other servers would give the same.
type noSuchName struct {
	text string
	ttl  time.Duration // how long the negative answer is valid; 0 if the server did not specify it
}

func (e *noSuchName) Error() string { return e.text }

// noAnswer is a timeout of a server.
type noAnswer struct {
	server string
	after  time.Duration
}

func (e *noAnswer) Error() string { return fmt.Sprintf("%s: no answer within %v", e.server, e.after) }
func (e *noAnswer) Timeout() bool { return true }

// notReached is a server that could not be reached.
type notReached struct {
	server string
	cause  error
}

func (e *notReached) Error() string { return fmt.Sprintf("%s: %v", e.server, e.cause) }
func (e *notReached) Unwrap() error { return e.cause }

// unheard reports whether there was no answer from a server: a packet was lost, or a server is not
// running yet.
func unheard(err error) bool {
	var silent *noAnswer
	var away *notReached
	return errors.As(err, &silent) || errors.As(err, &away)
}

// query queries the servers in order until one gives a positive or negative answer. A
// *noSuchName is a negative answer; any other error contains the error of every server.
func (r *Resolver) query(ctx context.Context, servers []string, name string, kind uint16) (*dns.Msg, error) {
	var errs []error
	for _, server := range servers {
		reply, err := r.ask(ctx, server, name, kind)
		if err == nil {
			return reply, nil
		}
		if no := (*noSuchName)(nil); errors.As(err, &no) {
			return nil, err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// ask makes one query to one server, again over TCP if the answer was truncated.
func (r *Resolver) ask(ctx context.Context, server, name string, kind uint16) (*dns.Msg, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()

	msg := new(dns.Msg).SetQuestion(name, kind)
	msg.SetEdns0(udpSize, false)
	reply, err := r.exchange(ctx, "udp", server, msg)
	if err == nil && reply.Truncated {
		reply, err = r.exchange(ctx, "tcp", server, msg)
	}
	switch {
	case err != nil:
		return nil, serverError(server, r.cfg.Timeout, err)
	case !reply.Response || len(reply.Question) != 1 || !strings.EqualFold(reply.Question[0].Name, name) || reply.Question[0].Qtype != kind:
		return nil, fmt.Errorf("%s: the answer belongs to another question", server)
	case reply.Rcode == dns.RcodeNameError:
		return nil, &noSuchName{text: fmt.Sprintf("no such name, answered %s (NXDOMAIN)", server), ttl: negativeTTL(reply)}
	case reply.Rcode != dns.RcodeSuccess:
		return nil, fmt.Errorf("%s: the server failed (%s)", server, rcode(reply.Rcode))
	}
	return reply, nil
}

// negativeTTL returns how long a negative answer is valid: the lower of the TTL and the
// minimum of the zone's SOA record (RFC 2308), and 0 if there is none. The owner of the SOA
// record is not checked, because the caller limits the result.
func negativeTTL(reply *dns.Msg) time.Duration {
	for _, rr := range reply.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return max(min(seconds(soa.Hdr.Ttl), seconds(soa.Minttl)), minTTL)
		}
	}
	return 0
}

// noFor returns how long a failure is valid according to the server; 0 if it did not specify it.
func noFor(err error) time.Duration {
	var no *noSuchName
	if errors.As(err, &no) {
		return no.ttl
	}
	return 0
}

// sooner returns the shorter of two times, of which 0 means unknown.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (r *Resolver) exchange(ctx context.Context, network, server string, msg *dns.Msg) (*dns.Msg, error) {
	client := &dns.Client{Net: network, Timeout: r.cfg.Timeout}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The client supports only deadlines; closing the connection makes it notice a cancellation.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	reply, _, err := client.ExchangeWithConnContext(ctx, msg, conn)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return reply, err
}

// serverError returns an error with the server and the cause, without local ports and
// addresses, which differ every time.
func serverError(server string, timeout time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return &noAnswer{server: server, after: timeout}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return &notReached{server: server, cause: err}
}

func rcode(code int) string {
	if text, ok := dns.RcodeToString[code]; ok {
		return text
	}
	return fmt.Sprintf("RCODE %d", code)
}
