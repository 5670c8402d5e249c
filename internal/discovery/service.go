package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// maxTargets limits how many records of one SRV answer are used.
const maxTargets = 256

// record is one SRV record.
type record struct {
	host             string
	port             uint16
	priority, weight uint16
}

// target is one SRV record with the addresses of its host.
type target struct {
	// Host is the name of the target, in lower case, without the trailing dot.
	Host string
	// Port is the target's own port.
	Port uint16
	// Priority and Weight are the record's; a lower priority comes first.
	Priority, Weight uint16
	// Addrs are the addresses of the host, never empty.
	Addrs []netip.Addr
}

// serviceResult is the answer for a service name.
type serviceResult struct {
	// Targets are in the order in which they should be tried: lowest priority first, and within
	// one priority at random in proportion to weight, newly drawn at every call. Never empty.
	Targets []target
	// Stale is true if a part of the answer is old because a new lookup failed.
	Stale bool
	// Reason is what is stale or missing, and why; nil if nothing is.
	Reason error

	old    bool                // the records are old, not only addresses of targets
	failed map[string]families // by host, as in target
	serial uint64
	until  time.Time // when a part of the answer must be looked up again, also after an error
}

// lookupService returns the targets of an SRV name such as _gossip._udp.example. Addresses
// come from the additional section of the answer or from A and AAAA records. A target that
// does not resolve is left out and listed in Reason; if none resolves, the lookup fails.
func (r *Resolver) lookupService(ctx context.Context, name string, mode Mode) (serviceResult, error) {
	checked, err := checkServiceName(name)
	if err != nil {
		return serviceResult{}, fmt.Errorf("look up %.300q: %w", name, err)
	}
	found, err := r.cached(ctx, question{name: checked, service: true}, mode, func(ctx context.Context) resolution {
		return r.resolveService(ctx, checked)
	})
	if err != nil {
		return serviceResult{until: found.until}, err
	}
	return r.resolveTargets(ctx, checked, found, mode)
}

func (r *Resolver) resolveTargets(ctx context.Context, name string, found lookup, mode Mode) (serviceResult, error) {
	records := found.answer.records
	until := found.until
	var mu sync.Mutex // guards hosts, reasons and until, before wg is done
	hosts := make(map[string]Result)
	reasons := make(map[string]error)
	var wg sync.WaitGroup
	for i, rec := range records {
		if slices.ContainsFunc(records[:i], func(other record) bool { return other.host == rec.host }) {
			continue
		}
		wg.Go(func() {
			host := rec.host
			mode := mode
			if found.stale == nil && found.answer.along[host] {
				mode = UseCache // the addresses in the same answer are new enough
			}
			res, err := r.LookupHost(ctx, host, mode)
			mu.Lock()
			defer mu.Unlock()
			if res.until.Before(until) && !res.until.IsZero() {
				until = res.until
			}
			if err != nil {
				reasons[host] = err
				return
			}
			hosts[host], reasons[host] = res, res.Reason
		})
	}
	wg.Wait()

	out := serviceResult{Stale: found.stale != nil, old: found.stale != nil, failed: make(map[string]families), serial: found.answer.serial, until: until}
	var errs []error
	if found.stale != nil {
		errs = append(errs, fmt.Errorf("look up %q: %w", name, found.stale))
	}
	for _, rec := range r.shuffle(records) {
		res, ok := hosts[rec.host]
		if reason := reasons[rec.host]; reason != nil {
			errs = append(errs, reason)
			reasons[rec.host] = nil // report it once for several ports of one host
		}
		host := strings.TrimSuffix(rec.host, ".")
		if out.failed[host] = res.failed; !ok || res.Stale {
			out.failed[host] = familyV4 | familyV6
		}
		if !ok {
			continue
		}
		out.Stale = out.Stale || res.Stale
		out.serial = max(out.serial, res.serial)
		out.Targets = append(out.Targets, target{
			Host: host, Port: rec.port, Priority: rec.priority, Weight: rec.weight, Addrs: res.Addrs,
		})
	}
	out.Reason = errors.Join(errs...)
	if ctx.Err() != nil && len(out.Targets) == 0 {
		return serviceResult{}, errGaveUp(ctx, name)
	}
	if len(out.Targets) == 0 {
		return serviceResult{until: until}, fmt.Errorf("look up %q: none of its targets resolves: %w", name, out.Reason)
	}
	return out, nil
}

// resolveService queries the SRV records and caches the addresses in the same answer.
func (r *Resolver) resolveService(ctx context.Context, name string) resolution {
	servers, names, err := r.system(name)
	if err != nil {
		return resolution{err: err}
	}
	var failed, unknown error
	var ttl time.Duration
	for _, fqdn := range names {
		reply, err := r.query(ctx, servers, fqdn, dns.TypeSRV)
		if err == nil {
			var res resolution
			if res, err = serviceRecords(reply, fqdn); err == nil {
				res.answer.along = r.keepAdditional(reply, res.answer.records)
				return res
			}
		}
		ttl = sooner(ttl, noFor(err))
		if isNo(err) {
			unknown = cmp.Or(unknown, err)
			continue
		}
		failed = cmp.Or(failed, err)
		if resultOf(err) == resultTimeout || ctx.Err() != nil {
			break
		}
	}
	return resolution{err: fmt.Errorf("SRV query failed: %w", cmp.Or(failed, unknown)), ttl: ttl}
}

// serviceRecords reads the SRV records of a name, following aliases.
func serviceRecords(reply *dns.Msg, name string) (resolution, error) {
	var out resolution
	lowest := ^uint32(0)
	owner := name
	for range maxAliases {
		alias := ""
		for _, rr := range reply.Answer {
			if !strings.EqualFold(rr.Header().Name, owner) {
				continue
			}
			switch rr := rr.(type) {
			case *dns.CNAME:
				alias = rr.Target
			case *dns.SRV:
				if rr.Target == "." {
					return out, &noSuchName{text: "the service is not offered (SRV target \".\")", ttl: max(seconds(rr.Hdr.Ttl), minTTL)}
				}
				// Fully qualified, so that no search list is applied.
				rec := record{host: strings.ToLower(dns.Fqdn(rr.Target)), port: rr.Port, priority: rr.Priority, weight: rr.Weight}
				if rr.Port != 0 && len(out.answer.records) < maxTargets && !slices.Contains(out.answer.records, rec) {
					out.answer.records = append(out.answer.records, rec)
				}
			default:
				continue
			}
			lowest = min(lowest, rr.Header().Ttl)
		}
		if alias == "" || len(out.answer.records) > 0 {
			break
		}
		owner = alias
	}
	if len(out.answer.records) == 0 {
		return out, &noSuchName{text: "the name exists, but has no usable SRV record", ttl: negativeTTL(reply)}
	}
	out.ttl = seconds(lowest)
	return out, nil
}

// keepAdditional caches the addresses of targets in the additional section, and returns the
// hosts of these.
func (r *Resolver) keepAdditional(reply *dns.Msg, records []record) map[string]bool {
	along := make(map[string]bool)
	for _, rec := range records {
		if _, err := checkName(rec.host); err != nil || along[rec.host] {
			continue
		}
		addrs, ttl := addresses(reply.Extra, rec.host)
		if len(addrs) == 0 {
			continue
		}
		along[rec.host] = true
		q := question{name: rec.host}
		r.mu.Lock()
		e := r.entryOf(q)
		r.mu.Unlock()
		res := r.accept(rec.host, resolution{answer: answer{addrs: addrs}, ttl: ttl}, false)
		_, _ = r.settle(e, q, res) // a violated rule is cached as the host's failure
	}
	return along
}

// shuffle orders records as RFC 2782 requires: by priority, and within one priority each
// next one at random in proportion to its weight. Weight 0 has a small chance.
func (r *Resolver) shuffle(records []record) []record {
	out := slices.Clone(records)
	slices.SortStableFunc(out, func(a, b record) int { return cmp.Compare(a.priority, b.priority) })
	for start := 0; start < len(out); {
		end := start + 1
		for end < len(out) && out[end].priority == out[start].priority {
			end++
		}
		r.shuffleByWeight(out[start:end])
		start = end
	}
	return out
}

func (r *Resolver) shuffleByWeight(group []record) {
	// Weight w counts as 100w + 1: nearly the ratio of the weights, and every weight has a
	// chance.
	share := func(rec record) float64 { return 100*float64(rec.weight) + 1 }
	total := 0.0
	for _, rec := range group {
		total += share(rec)
	}
	for i := range group {
		pick, left := i, r.cfg.Rand()*total
		for pick < len(group)-1 && left >= share(group[pick]) {
			left -= share(group[pick])
			pick++
		}
		total -= share(group[pick])
		group[i], group[pick] = group[pick], group[i]
	}
}
