// Package discovery resolves seeds to IP:port addresses and keeps the result up to date.
//
// # Promise
//
// [Finder.Addrs] is the newest list of addresses at which other members may be found. A
// name that does not resolve never affects the others, a failed DNS server never empties
// the list, and a name whose addresses all changed leads to the new ones automatically. DNS
// answers are hints: an address counts as a member only after the hello, and an empty
// answer never means that the cluster is empty.
//
// # Picture
//
//	seeds ──ParseSeed──► Finder ── TTL, 1 to 60 s, + 1/12; Refresh ──► Addrs
//	 host[:port]           │ per seed: known addresses,              (one atomic load)
//	 ip:port, [v6]:port    │ dropped after 3 answers without them
//	 dns+name[:port]       ▼
//	 srv+_gossip._udp.name Resolver.LookupHost, LookupSRV
//	                       │  cache: TTL │ SOA, ≤ 30 s │ stale
//	                       │  one query in flight per name
//	                       ▼
//	                    hosts file, then DNS: UDP, without EDNS if that fails, TCP when truncated,
//	                    servers in order, 2 s each
//	                       │
//	                       ▼
//	                    allowed CIDRs, private-address rule, flux
//
// # How long an answer is valid
//
// A DNS answer is valid for the lowest TTL of its records, but at most MaxTTL, so that a
// cluster that moved is found again even if the zone has a long TTL. TTL 0 means "do not
// cache": such an answer is valid for one second, which only protects the server from a
// burst. An answer from the hosts file has no TTL and is valid for CacheTTL. A failure of
// any kind is valid for NegativeTTL, which does not grow; if the server reports that the
// name or address does not exist, the zone's SOA record can shorten that time, to one
// second at least. When a refresh fails, the last successful answer is served as stale,
// however old it is.
//
// Finder.Run looks up a name again when the first of these times ends, at most once per
// second and at least every RefreshInterval; jitter in proportion is added. Finder.Recheck
// is for a member that looks for other members: it accepts negative answers and server
// failures while these are valid, but repeats a lookup that timed out, and one whose answer
// is older than the caller allows.
//
// # Rules
//
//   - Finder.Run blocks; its caller owns that goroutine. All goroutines that a method
//     starts have ended when the method returns. No lookup outlives its callers.
//   - All methods may be called from any goroutine.
//   - Locks: Resolver.mu guards the cache and is never held during a query or a log line.
//     Finder.turn allows one refresh at a time; it is a channel so that a waiting caller
//     can be cancelled. Readers of Addrs take neither.
//   - Resolver.slots limits the queries in flight. It is held only for one exchange with
//     one server, so lookups that start lookups (SRV targets) cannot wait for each other.
//   - The package does not depend on membership and returns only addresses.
//
// # Sources
//
// SRV order: RFC 2782. Failures are cached as in RFC 2308, including those without a SOA
// record. Serving stale answers: RFC 8767. The search list continues after "no such name"
// and after a server failure, and stops at a timeout, like glibc. Rows of
// docs/reference/sources.md: HS-A3 to A7, A14 to A17, A20, HS-C.
package discovery
