// Package discovery turns seeds into IP:port addresses, for ever.
//
// # Promise
//
// [Finder.Addrs] is the newest list of addresses at which other members may be
// found. A name that does not resolve never stops the others, a DNS server that
// dies never empties the list, and a name whose every address changed leads to
// the new ones by itself. What DNS says is a hint: nobody is a member before the
// hello, and an empty answer never means that the cluster is empty.
//
//	seeds ──ParseSeed──► Finder ── TTL, 1 to 60 s, + 1/12; Refresh ──► Addrs
//	 host[:port]           │ per seed: known addresses,              (one atomic load)
//	 ip:port, [v6]:port    │ dropped after 3 answers without them
//	 dns+name[:port]       ▼
//	 srv+_gossip._udp.name Resolver.LookupHost, LookupSRV
//	                       │  cache: TTL │ SOA, ≤ 30 s │ stale
//	                       │  one query in flight per name
//	                       ▼
//	                    hosts file, then DNS: UDP, TCP when truncated,
//	                    servers in order, 2 s each
//	                       │
//	                       ▼
//	                    allowed CIDRs, private-address rule, flux
//
// # How long an answer counts
//
// A DNS answer counts for the lowest TTL of its records, at most MaxTTL (so that
// a cluster that moved is found again whatever its zone says). TTL 0 means "do not
// keep": such an answer counts for one second, which only spares the server a
// burst. An answer from the hosts file has no TTL and counts for CacheTTL. A
// failure of any kind counts for NegativeTTL, which does not grow; where the server
// says that there is no such name or address, the zone's SOA record can shorten it,
// to one second at least. When a refresh fails, the last good answer is served as
// stale, however old it is.
//
// Finder.Run asks again when the first of these times ends, at most every second,
// and looks at least every RefreshInterval; jitter in proportion is added.
// Finder.Recheck is for a member that looks for others: it leaves alone
// what a server said no to or failed at while that counts, and asks past silence and
// past an answer that is older than its caller trusts.
//
// # Rules
//
//   - Finder.Run blocks; its caller owns that goroutine. Everything that a method
//     starts has ended when the method returns. No lookup outlives its callers.
//   - All methods may be called from any goroutine.
//   - Locks: Resolver.mu guards the cache and is never held during a query or a
//     log line. Finder.turn lets one refresh run at a time; it is a channel so
//     that a waiting caller can give up. Readers of Addrs take neither.
//   - Resolver.slots bounds the queries on the wire. It is taken around one
//     exchange with one server and nothing else, so lookups that start lookups
//     (SRV targets) cannot wait for each other.
//   - The package does not know membership and hands out nothing but addresses.
//
// # Sources
//
// SRV order: RFC 2782. Failures are cached as in RFC 2308, those without a SOA record too. Serving stale: RFC 8767.
// Search lists go on after "no such name" and after a server's failure, and stop
// at a timeout, as glibc does. Rows of
// docs/reference/sources.md: HS-A3 to A7, A14 to A17, A20, HS-C.
package discovery
