package identity

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Why a connection was ended before its other end had proven who it is.
const (
	// StrangerTimeout: it took longer than the limit.
	StrangerTimeout = "timeout"
	// StrangersTooMany: a newer connection needed its place.
	StrangersTooMany = "too_many"
	// StrangersOfSource: a newer connection of the same source needed its place.
	StrangersOfSource = "too_many_from_source"
)

// StrangerReasons lists them, for metrics.
func StrangerReasons() []string {
	return []string{StrangerTimeout, StrangersTooMany, StrangersOfSource}
}

// StrangersConfig bounds a set of Strangers. Zero values mean the defaults.
type StrangersConfig struct {
	// Limit is how long one may take to prove who it is. Default 3 s: a handshake
	// needs a few round trips.
	Limit time.Duration
	// Total is how many there may be. Default 1024: what they hold then is about
	// 20 MB.
	Total int
	// PerSource is how many there may be of one source: an IPv4 address, or 64 bits
	// of an IPv6 address, which is what one host can choose from. Default 256: a
	// relay opens a few connections at a time, and dozens of relays may share an
	// address.
	PerSource int
}

// Strangers are the connections of one listener whose other ends have not proven
// yet who they are. There is always room for a new one: where a bound is reached an
// older one is closed for it, of the same source if that is over its share. Usually
// that is the oldest one that has sent nothing. When fewer than a quarter have sent
// nothing it is the oldest of the others, so that connections that send a little
// and then stall cannot keep out a new one, which has had no time to send.
//
// It is safe for concurrent use.
type Strangers struct {
	cfg StrangersConfig

	mu      sync.Mutex
	waiting []*Stranger // the oldest first
	sources map[netip.Prefix]int
}

// Stranger is one of them. It is the connection, and may be used in its place for
// as long as that lives.
type Stranger struct {
	net.Conn
	all    *Strangers
	source netip.Prefix
	limit  *time.Timer
	spoke  atomic.Bool
	reason string // why it was ended; guarded by all.mu
}

// NewStrangers returns an empty set.
func NewStrangers(cfg StrangersConfig) *Strangers {
	cfg.Limit = cmp.Or(cfg.Limit, 3*time.Second)
	cfg.Total = cmp.Or(cfg.Total, 1024)
	cfg.PerSource = cmp.Or(cfg.PerSource, 256)
	return &Strangers{cfg: cfg, sources: map[netip.Prefix]int{}}
}

// Meet takes in a connection that was just accepted. The caller ends its stay with
// Leave.
func (s *Strangers) Meet(conn net.Conn) *Stranger {
	one := &Stranger{Conn: conn, all: s, source: originOf(conn.RemoteAddr())}
	s.mu.Lock()
	var gone *Stranger
	switch {
	case s.sources[one.source] >= s.cfg.PerSource:
		gone = s.giveWay(StrangersOfSource, func(w *Stranger) bool { return w.source == one.source })
	case len(s.waiting) >= s.cfg.Total:
		gone = s.giveWay(StrangersTooMany, func(*Stranger) bool { return true })
	}
	s.waiting = append(s.waiting, one)
	s.sources[one.source]++
	one.limit = time.AfterFunc(s.cfg.Limit, one.expire)
	s.mu.Unlock()
	if gone != nil {
		_ = gone.Conn.Close()
	}
	return one
}

// giveWay chooses who is closed for a new one. The lock is held.
func (s *Strangers) giveWay(reason string, among func(*Stranger) bool) *Stranger {
	var silent, talking *Stranger // the oldest of each kind
	var silents, all int
	for _, w := range s.waiting {
		if !among(w) {
			continue
		}
		all++
		if w.spoke.Load() {
			talking = cmp.Or(talking, w)
		} else {
			silents++
			silent = cmp.Or(silent, w)
		}
	}
	gone := silent
	if silents < (all+3)/4 && talking != nil {
		gone = talking
	}
	s.remove(gone, reason)
	return gone
}

// remove ends a stay, unless it has ended. The lock is held.
func (s *Strangers) remove(one *Stranger, reason string) bool {
	at := slices.Index(s.waiting, one)
	if at < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	if s.sources[one.source]--; s.sources[one.source] == 0 {
		delete(s.sources, one.source)
	}
	one.reason = reason
	one.limit.Stop()
	return true
}

func (c *Stranger) expire() {
	c.all.mu.Lock()
	late := c.all.remove(c, StrangerTimeout)
	c.all.mu.Unlock()
	if late {
		_ = c.Conn.Close()
	}
}

// Leave ends the stay: the other end has proven who it is, or has failed to. It
// returns why the connection was closed meanwhile, empty if it was not.
func (c *Stranger) Leave() (reason string) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.remove(c, "")
	return c.reason
}

// Read notes that the other end has sent something.
func (c *Stranger) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

// originOf is what a host can hardly have many of.
func originOf(addr net.Addr) netip.Prefix {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Prefix{} // no IP: all such are one source
	}
	ip, bits := from.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // it fails for other lengths only
	return prefix
}
