package discovery

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// maxServers is how many servers of resolv.conf are used, as in resolv.conf(5).
const maxServers = 3

// Limits of one answer. An answer over TCP has room for thousands of addresses. A member needs
// a few that answer, and tries addresses one after the other.
const (
	maxAliases   = 16   // CNAME records in a chain
	maxAddresses = 1024 // usable addresses of a name, the first ones
)

// Mode determines whether a lookup may be answered from the cache.
type Mode uint8

const (
	// UseCache answers from the cache if the cached result is valid.
	UseCache Mode = iota
	// SkipCache queries the servers even if an answer or a failure is cached (HS-C7). A query for
	// the same name that is already in flight is used.
	SkipCache
)

// Resolver looks names up and caches the results. Create it with NewResolver; all methods
// may be called from any goroutine. It has no goroutine and needs no Close.
type Resolver struct {
	cfg     ResolverConfig
	rules   rules
	metrics *resolverMetrics
	port    string        // of the servers in ResolvConf
	slots   chan struct{} // one for each query in flight

	mu      sync.Mutex // guards the fields below, including entries
	entries map[question]*entry
	serial  uint64
	stats   CacheStats // only the counters
}

// NewResolver checks the configuration and reports all problems together. It makes no query
// and reads no file.
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
	// Addrs are the addresses in the order of the answer, IPv4 first, without duplicates; never
	// empty.
	Addrs []netip.Addr
	// Stale is true if a new lookup failed and this is the last successful answer, however old;
	// Reason is the error.
	Stale  bool
	Reason error

	failed families
	serial uint64
	until  time.Time // when the name must be looked up again, also after an error
}

// families are address families: those about whose addresses an answer shows nothing.
type families uint8

const (
	familyV4 families = 1 << iota
	familyV6
)

func (f families) contain(addr netip.Addr) bool {
	if addr.Is4() {
		return f&familyV4 != 0
	}
	return f&familyV6 != 0
}

// LookupHost returns the IPv4 and IPv6 addresses of a host name, from the hosts file or
// else from A and AAAA records. One of the two address families is enough. It fails if
// there is no usable address and never was; the error contains the host and the cause. ctx
// ends it early.
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
		failed: found.answer.failed, serial: found.answer.serial, until: found.until,
	}, nil
}

// resolveHost looks addresses up outside the cache.
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
			break // the next name would also wait for the timeout
		}
	}
	return resolution{err: cmp.Or(failed, unknown), ttl: ttl}
}

func isLocalhost(name string) bool {
	name = strings.TrimSuffix(name, ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// resolveFQDN queries both address families simultaneously.
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
		if !isNo(v6.err) {
			v4.answer.failed = familyV6
		}
		return v4
	case v6.err == nil:
		if !isNo(v4.err) {
			v6.answer.failed = familyV4
		}
		return v6
	}
	ttl := sooner(v4.ttl, v6.ttl)
	if isNo(v4.err) { // the failure of the other family is more informative
		return resolution{err: v6.err, ttl: ttl}
	}
	return resolution{err: v4.err, ttl: ttl}
}

func isNo(err error) bool {
	var no *noSuchName
	return errors.As(err, &no)
}

// accept applies the address rules. name is the name that was answered.
func (r *Resolver) accept(name string, res resolution, trusted bool) resolution {
	res.answer.addrs, res.drops = r.rules.filter(name, res.answer.addrs, trusted)
	if len(res.answer.addrs) == 0 {
		res.ttl = 0 // the TTL of the records does not apply to a refusal
		res.err = fmt.Errorf("no usable address: %s", r.rules.describe(res.drops))
	}
	return res
}

// addresses returns the addresses of a name in a section, following aliases, and the lowest
// TTL on that path. Records of other names are ignored.
func addresses(records []dns.RR, name string) (out []netip.Addr, ttl time.Duration) {
	lowest := ^uint32(0)
	owner := name
	seen := map[netip.Addr]bool{}
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
			if addr, ok := netip.AddrFromSlice(ip); ok && !seen[addr.Unmap()] {
				seen[addr.Unmap()] = true
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

// system returns the servers to query and the names to look up, in order.
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
		if _, err := checkName(n); err == nil { // a search suffix can make the name too long
			names = append(names, n)
		}
	}
	return servers, names, nil
}

// resultOf returns the metric label for the result of a lookup.
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

// maxHostsFile limits how much of a hosts file is read.
const maxHostsFile = 1 << 20

// hostsAddrs returns the addresses of a name in a file in the format of hosts(5). The file
// is read at every call: it is small, and container runtimes rewrite it. A missing file
// contains no names.
func hostsAddrs(path, name string) ([]netip.Addr, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the hosts file: %w", err)
	}
	defer file.Close()
	name = strings.TrimSuffix(name, ".")
	var out []netip.Addr
	lines := bufio.NewScanner(io.LimitReader(file, maxHostsFile))
	lines.Buffer(nil, maxHostsFile)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		named := slices.ContainsFunc(fields[1:], func(f string) bool {
			return strings.EqualFold(strings.TrimSuffix(f, "."), name)
		})
		if ip, err := netip.ParseAddr(fields[0]); named && err == nil {
			if ip = ip.Unmap().WithZone(""); !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the hosts file %s: %w", path, err)
	}
	return out, nil
}
