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
// *noSuchName is a negative answer; any other error contains the error of every server. If no
// server gives a whole answer, a part of one is the answer: a few addresses are enough to join.
func (r *Resolver) query(ctx context.Context, servers []string, name string, kind uint16) (*dns.Msg, error) {
	var errs []error
	var part *dns.Msg
	for _, server := range servers {
		reply, err := r.ask(ctx, server, name, kind)
		if err == nil {
			return reply, nil
		}
		if part == nil {
			part = reply
		}
		if no := (*noSuchName)(nil); errors.As(err, &no) {
			return nil, err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if part != nil {
		return part, nil
	}
	return nil, errors.Join(errs...)
}

// ask makes one query to one server, again without EDNS if the server does not know it, and
// over TCP if the answer was truncated. If TCP fails, it returns the truncated answer together
// with the error.
func (r *Resolver) ask(ctx context.Context, server, name string, kind uint16) (*dns.Msg, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()

	reply, msg, err := r.askUDP(ctx, server, new(dns.Msg).SetQuestion(name, kind))
	var part *dns.Msg
	if err == nil && reply.Truncated {
		if answers(reply, name, kind) && reply.Rcode == dns.RcodeSuccess && len(reply.Answer) > 0 {
			part = reply
		}
		reply, err = r.exchange(ctx, "tcp", server, msg)
	}
	switch {
	case err != nil:
		return part, serverError(server, r.cfg.Timeout, err)
	case !answers(reply, name, kind):
		return part, fmt.Errorf("%s: the answer belongs to another question", server)
	case reply.Rcode == dns.RcodeNameError:
		return nil, &noSuchName{text: fmt.Sprintf("no such name, answered %s (NXDOMAIN)", server), ttl: negativeTTL(reply)}
	case reply.Rcode != dns.RcodeSuccess:
		return part, fmt.Errorf("%s: the server failed (%s)", server, rcode(reply.Rcode))
	}
	return reply, nil
}

// askUDP sends a question with EDNS. A server that does not know EDNS refuses it or is silent
// (RFC 6891, section 7) and gets the question again without it, after silence in the second
// half of the time. It returns the question that was answered.
func (r *Resolver) askUDP(ctx context.Context, server string, plain *dns.Msg) (reply, asked *dns.Msg, err error) {
	extended := plain.Copy().SetEdns0(udpSize, false)
	half, cancel := context.WithTimeout(ctx, r.cfg.Timeout/2)
	defer cancel()
	reply, err = r.exchange(half, "udp", server, extended)
	switch {
	case err != nil && !silence(err):
		return nil, nil, err
	case err == nil && reply.Rcode != dns.RcodeFormatError && reply.Rcode != dns.RcodeNotImplemented:
		return reply, extended, nil
	}
	reply, err = r.exchange(ctx, "udp", server, plain)
	return reply, plain, err
}

// answers reports whether a message answers this question.
func answers(reply *dns.Msg, name string, kind uint16) bool {
	return reply.Response && len(reply.Question) == 1 && strings.EqualFold(reply.Question[0].Name, name) && reply.Question[0].Qtype == kind
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

func silence(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// serverError returns an error with the server and the cause, without local ports and
// addresses, which differ every time.
func serverError(server string, timeout time.Duration, err error) error {
	if silence(err) {
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
