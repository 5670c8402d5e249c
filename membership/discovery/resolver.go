package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// maxServers is how many servers of resolv.conf count, as in resolv.conf(5).
const maxServers = 3

// maxAliases bounds a chain of CNAME records within one answer.
const maxAliases = 16

// Mode says whether a lookup may be answered from the cache.
type Mode uint8

const (
	// UseCache answers from what is known and still counts.
	UseCache Mode = iota
	// SkipCache asks the servers whatever is known, answers and failures (HS-C7).
	// A query for the same name that is already under way is good enough.
	SkipCache
)

// Resolver looks names up and remembers what it heard. Create it with
// NewResolver; all methods may be called from any goroutine. It has no goroutine
// of its own and needs no Close.
type Resolver struct {
	cfg     ResolverConfig
	rules   rules
	metrics *resolverMetrics
	port    string        // of the servers in ResolvConf
	slots   chan struct{} // one for each query on the wire

	mu      sync.Mutex // guards what follows, entries included
	entries map[question]*entry
	serial  uint64
	stats   CacheStats // the counters only
}

// NewResolver checks the configuration and reports all that is wrong with it at
// once. It makes no query and reads no file.
func NewResolver(cfg ResolverConfig) (*Resolver, error) {
	cfg, allowed, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return &Resolver{
		cfg:     cfg,
		rules:   rules{allowed: allowed, blockPrivate: cfg.BlockPrivateForPublic, internal: cfg.InternalSuffixes, reportOnly: cfg.ReportOnly},
		metrics: newResolverMetrics(cfg.Registerer),
		port:    "53",
		slots:   make(chan struct{}, cfg.MaxQueries),
		entries: make(map[question]*entry),
	}, nil
}

// Result is the answer for a host name.
type Result struct {
	// Addrs are the addresses in the order of the answer, IPv4 first, without
	// repetition; never empty.
	Addrs []netip.Addr
	// Stale says that a new answer could not be had and this is the last good one,
	// however old; Reason says why.
	Stale  bool
	Reason error

	partial bool
	serial  uint64
	until   time.Time // when the name is due again, after an error too
}

// LookupHost returns the IPv4 and IPv6 addresses of a host name, from the hosts
// file or else from A and AAAA records. Of two address families one is enough. It
// fails when there is no usable address and never was; the error names the host
// and the cause. ctx ends it early.
func (r *Resolver) LookupHost(ctx context.Context, name string, mode Mode) (Result, error) {
	checked, err := checkName(name)
	if err != nil {
		return Result{}, fmt.Errorf("look up %.300q: %w", name, err)
	}
	found, err := r.cached(ctx, question{name: checked}, mode, func(ctx context.Context) resolution {
		return r.resolveHost(ctx, checked)
	})
	if err != nil {
		return Result{until: found.until}, err
	}
	return Result{
		Addrs: slices.Clone(found.answer.addrs), Stale: found.stale != nil, Reason: found.stale,
		partial: found.answer.partial, serial: found.answer.serial, until: found.until,
	}, nil
}

// resolveHost finds addresses outside the cache.
func (r *Resolver) resolveHost(ctx context.Context, name string) resolution {
	addrs, err := hostsAddrs(r.cfg.HostsFile, name)
	if err != nil {
		return resolution{err: err}
	}
	if len(addrs) == 0 && isLocalhost(name) { // never a question for DNS (RFC 6761)
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	if len(addrs) > 0 {
		return r.accept(name, resolution{answer: answer{addrs: addrs}, ttl: r.cfg.CacheTTL}, true)
	}
	servers, names, err := r.system(name)
	if err != nil {
		return resolution{err: err}
	}
	var failed, unknown error
	var ttl time.Duration
	for _, fqdn := range names {
		res := r.resolveFQDN(ctx, servers, fqdn)
		if res.err == nil {
			return r.accept(fqdn, res, false)
		}
		ttl = sooner(ttl, res.ttl)
		if no := (*noSuchName)(nil); errors.As(res.err, &no) {
			unknown = cmp.Or(unknown, res.err)
			continue
		}
		failed = cmp.Or(failed, res.err)
		if resultOf(res.err) == resultTimeout || ctx.Err() != nil {
			break // the next name would wait just as long
		}
	}
	return resolution{err: cmp.Or(failed, unknown), ttl: ttl}
}

func isLocalhost(name string) bool {
	name = strings.TrimSuffix(name, ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// resolveFQDN asks for both address families at once.
func (r *Resolver) resolveFQDN(ctx context.Context, servers []string, fqdn string) resolution {
	kinds := [2]uint16{dns.TypeA, dns.TypeAAAA}
	var results [2]resolution
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() {
			reply, err := r.query(ctx, servers, fqdn, kind)
			if err != nil {
				results[i].err, results[i].ttl = err, noFor(err)
				return
			}
			results[i].answer.addrs, results[i].ttl = addresses(reply.Answer, fqdn)
			if len(results[i].answer.addrs) == 0 {
				no := &noSuchName{text: "the name exists, but has no address", ttl: negativeTTL(reply)}
				results[i].err, results[i].ttl = no, no.ttl
			}
		})
	}
	wg.Wait()

	v4, v6 := results[0], results[1]
	switch {
	case v4.err == nil && v6.err == nil:
		v4.answer.addrs = append(v4.answer.addrs, v6.answer.addrs...)
		v4.ttl = min(v4.ttl, v6.ttl)
		return v4
	case v4.err == nil:
		v4.answer.partial = !isNo(v6.err)
		return v4
	case v6.err == nil:
		v6.answer.partial = !isNo(v4.err)
		return v6
	}
	ttl := sooner(v4.ttl, v6.ttl)
	if isNo(v4.err) { // the failure of the other says more
		return resolution{err: v6.err, ttl: ttl}
	}
	return resolution{err: v4.err, ttl: ttl}
}

func isNo(err error) bool {
	var no *noSuchName
	return errors.As(err, &no)
}

// accept applies the address rules. name is the one that was answered.
func (r *Resolver) accept(name string, res resolution, trusted bool) resolution {
	res.answer.addrs, res.drops = r.rules.filter(name, res.answer.addrs, trusted)
	if len(res.answer.addrs) == 0 {
		res.ttl = 0 // the records' own says nothing of a refusal
		res.err = fmt.Errorf("no usable address: %s", r.rules.describe(res.drops))
	}
	return res
}

// addresses takes the addresses of a name out of a section, following aliases,
// and the lowest TTL on the way. Records of other names are not believed.
func addresses(records []dns.RR, name string) (out []netip.Addr, ttl time.Duration) {
	lowest := ^uint32(0)
	owner := name
	for range maxAliases {
		alias := ""
		for _, rr := range records {
			if !strings.EqualFold(rr.Header().Name, owner) {
				continue
			}
			var ip net.IP
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			case *dns.CNAME:
				alias = rr.Target
			default:
				continue
			}
			lowest = min(lowest, rr.Header().Ttl)
			if addr, ok := netip.AddrFromSlice(ip); ok && !slices.Contains(out, addr.Unmap()) {
				out = append(out, addr.Unmap())
			}
		}
		if alias == "" || len(out) > 0 {
			break
		}
		owner = alias
	}
	return out, seconds(lowest)
}

// seconds reads a TTL; one with the top bit set counts as 0 (RFC 2181).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// system returns the servers to ask and the names to ask for, in order.
func (r *Resolver) system(name string) (servers, names []string, err error) {
	if len(r.cfg.Servers) > 0 {
		return r.cfg.Servers, []string{dns.Fqdn(name)}, nil
	}
	conf, err := dns.ClientConfigFromFile(r.cfg.ResolvConf)
	if errors.Is(err, fs.ErrNotExist) {
		conf, err = &dns.ClientConfig{Ndots: 1}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("no DNS server to ask: %w; set the servers", err)
	}
	for _, s := range conf.Servers[:min(len(conf.Servers), maxServers)] {
		servers = append(servers, net.JoinHostPort(s, r.port))
	}
	if len(servers) == 0 {
		servers = []string{net.JoinHostPort("127.0.0.1", r.port)}
	}
	for _, n := range conf.NameList(name) {
		if _, err := checkName(n); err == nil { // a search suffix can make it too long
			names = append(names, n)
		}
	}
	return servers, names, nil
}

// resultOf names the outcome of a lookup for the metric.
func resultOf(err error) string {
	var timeout *noAnswer
	switch {
	case err == nil:
		return resultSuccess
	case errors.As(err, &timeout):
		return resultTimeout
	}
	return resultError
}

func sameSet(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}
