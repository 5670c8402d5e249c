package membership

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxRefusals bounds what strangers can make us remember.
	maxRefusals = 256
	// refusalQuiet is how long one address is not worth another log line.
	refusalQuiet = time.Minute
	// maxRefusalLines bounds the log lines that those who dial us can cause in
	// refusalQuiet, from however many hosts.
	maxRefusalLines = 10
)

// refusals decides which refusals are worth a log line, and remembers the last by
// the address that we dialled: memberlist flattens the errors of a join, and this is
// where the reason is found again.
type refusals struct {
	mu     sync.Mutex
	byAddr map[string]notedRefusal

	// Of those who dialled us: nothing that they can choose is a key but the host
	// that they come from.
	byHost   map[netip.Prefix]time.Time // when it was last worth a line
	minute   time.Time                  // when the lines were counted from
	lines    int
	unlogged int // since the last line
}

type notedRefusal struct {
	err    *RefusalError
	logged time.Time
}

// note stores the refusal of an address that we dialled and reports whether it
// deserves a log line.
func (r *refusals) note(addr string, err *RefusalError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAddr == nil {
		r.byAddr = make(map[string]notedRefusal)
	}
	now := time.Now()
	old, known := r.byAddr[addr]
	if known && now.Sub(old.logged) < refusalQuiet && old.err.Field == err.Field {
		r.byAddr[addr] = notedRefusal{err, old.logged}
		return false
	}
	makeRoom(r.byAddr, known)
	r.byAddr[addr] = notedRefusal{err, now}
	return true
}

// heard reports whether the refusal of one who dialled us from addr deserves a log
// line, and how many did not since the last.
func (r *refusals) heard(addr string) (worthLine bool, unlogged int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.minute) >= refusalQuiet {
		r.minute, r.lines = now, 0
	}
	host := hostOf(addr)
	last, known := r.byHost[host]
	if r.lines >= maxRefusalLines || known && now.Sub(last) < refusalQuiet {
		r.unlogged++
		return false, 0
	}
	if r.byHost == nil {
		r.byHost = make(map[netip.Prefix]time.Time)
	}
	makeRoom(r.byHost, known)
	r.byHost[host] = now
	r.lines++
	unlogged, r.unlogged = r.unlogged, 0
	return true, unlogged
}

// hostOf is the host of an address, of IPv6 the network: one host has all of a /64.
func hostOf(addr string) netip.Prefix {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Prefix{}
	}
	ip := a.Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	host, _ := ip.WithZone("").Prefix(bits) // both are in range
	return host
}

// makeRoom keeps a map within maxRefusals before something new is put into it.
// Which entry goes does not matter: the newest is the one that is needed.
func makeRoom[K comparable, V any](m map[K]V, known bool) {
	if known || len(m) < maxRefusals {
		return
	}
	for key := range m {
		delete(m, key)
		return
	}
}

func (r *refusals) get(addr string) *RefusalError {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byAddr[addr].err
}

func (r *refusals) clear(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byAddr, addr)
}

// logRefusal writes one line, at warn when it is worth that.
func (t *transport) logRefusal(direction, addr string, err *RefusalError) {
	level, args := slog.LevelDebug, []any{"direction", direction, "err", err}
	worthLine, unlogged := false, 0
	if direction == inbound {
		worthLine, unlogged = t.refusals.heard(addr)
	} else {
		worthLine = t.refusals.note(addr, err)
	}
	if worthLine {
		level = slog.LevelWarn
	}
	if unlogged > 0 {
		args = append(args, "refused_since_last_line", unlogged)
	}
	t.logger.Log(t.ctx, level, "member refused", args...)
}
