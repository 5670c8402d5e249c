package sharedkey

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// parallel limits the relays that are asked simultaneously.
const parallel = 16

// older defines the order of relays: by epoch, then id.
func older(a, b membership.Member) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), strings.Compare(a.ID, b.ID))
}

// view holds the relays of one snapshot.
type view struct {
	others   []membership.Member // every live relay with an address except this one, oldest first
	joined   bool
	degraded bool
}

func (k *Keeper) view() view {
	v := view{joined: k.cfg.Joined()}
	snapshot := k.cfg.Members.Snapshot()
	if snapshot == nil {
		return v
	}
	v.degraded = snapshot.Degraded()
	// A relay without an address, such as a program that only picks, gives its key to no other, so
	// there is no reason to wait for its answer.
	v.others = slices.DeleteFunc(snapshot.WithRole(identity.RoleRelay), func(m membership.Member) bool { return m.ID == k.cfg.ID || m.ForwardAddr == "" })
	slices.SortFunc(v.others, older)
	return v
}

// staying returns the relays that are not leaving: only these must answer.
func (v view) staying() []membership.Member {
	return slices.DeleteFunc(slices.Clone(v.others), func(m membership.Member) bool { return m.Leaving })
}

// String is equal for equal views.
func (v view) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t %t", v.joined, v.degraded)
	for _, m := range v.others {
		fmt.Fprintf(&b, " %s %t", m.Instance(), m.Leaving)
	}
	return b.String()
}

// reply is the result of asking one relay.
type reply struct {
	member membership.Member
	answer Answer
	err    error
	asked  time.Time
}

// ask asks all given relays, several at a time, and returns when all have answered or timed
// out. Replies are in the order of relays.
func (k *Keeper) ask(ctx context.Context, relays []membership.Member) []reply {
	replies := make([]reply, len(relays))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, m := range relays {
		slots <- struct{}{}
		wg.Go(func() {
			replies[i] = k.askOne(ctx, m)
			<-slots
		})
	}
	wg.Wait()
	return replies
}

func (k *Keeper) askOne(ctx context.Context, m membership.Member) reply {
	asking, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	r := reply{member: m, asked: k.now()}
	r.answer, r.err = k.cfg.Fetch(asking, m)
	if r.err == nil && r.answer.Key.IsZero() {
		r.err = fmt.Errorf("%w: no key in it", ErrMalformed)
	}
	if ctx.Err() != nil {
		return r // this process is stopping: not a failure of the relay
	}
	k.metrics.fetches.WithLabelValues(fetchResult(r.err)).Inc()
	if r.err != nil {
		k.cfg.Logger.Debug("could not get the shared key", "relay", m.ID, "addr", m.ForwardAddr, "error", r.err)
	}
	return r
}

// learn stores every key of the replies, and reports whether there was one.
func (k *Keeper) learn(replies []reply) (found bool) {
	now := k.now()
	ring := k.ring.Load().expire(now)
	for _, r := range replies {
		if r.err != nil {
			continue
		}
		found = true
		var fork bool
		before := ring.current
		ring, fork = ring.learn(peerAnswer{answer: r.answer, asked: r.asked, now: now, retire: k.cfg.Retire, only: len(k.configured) > 0})
		if fork {
			k.metrics.forks.Inc()
			k.reportFork(r, before, ring)
		}
	}
	k.publish(ring)
	return found
}

func (k *Keeper) reportFork(r reply, before Key, after keyring) {
	attrs := []any{"relay", r.member.ID, "theirs", r.answer.Key, "ours", before, "in_use", after.current}
	switch {
	case before.given() && r.answer.Key.given():
		k.cfg.Logger.Warn("another relay was given another shared key; each signs with its own and verifies both: set the same "+settings+" on all relays", attrs...)
	default:
		k.cfg.Logger.Warn("another relay has another shared key; the older one is used, the other accepted until it expires", attrs...)
	}
}

// httpFetch asks relays over HTTP. It is the counterpart of Handler.
type httpFetch struct {
	scheme string
	label  string
	seal   func() []Secret // nil: answers are not sealed
	client func(membership.Member) *http.Client
}

// newHTTPFetch creates the client side of a valid configuration.
func newHTTPFetch(c *Config) *httpFetch {
	f := &httpFetch{scheme: "http", label: c.Label, client: c.Client}
	if c.Authorize != nil {
		f.scheme = "https"
	}
	if c.sealing() {
		f.seal = c.Seal
	}
	if f.client == nil {
		// No proxy from the environment, because the key must only go from relay to relay. No idle
		// connections, because relays are rarely asked.
		plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.Dial}}
		f.client = func(membership.Member) *http.Client { return plain }
	}
	return f
}

func (f *httpFetch) fetch(ctx context.Context, m membership.Member) (Answer, error) {
	if m.ForwardAddr == "" {
		return Answer{}, fmt.Errorf("it gossips no peer address")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.scheme+"://"+m.ForwardAddr+Path, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("ask: %w", err)
	}
	nonce := make([]byte, nonceBytes)
	if f.seal != nil {
		_, _ = rand.Read(nonce) // never fails
		req.Header.Set(nonceHeader, hex.EncodeToString(nonce))
	}
	client := *f.client(m)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case len(body) > maxAnswer:
		return Answer{}, fmt.Errorf("%w: more than %d bytes", ErrMalformed, maxAnswer)
	case resp.StatusCode == http.StatusForbidden:
		return Answer{}, fmt.Errorf("%w: %s", ErrRefused, refusalText(body))
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound:
		return Answer{}, fmt.Errorf("%w: status %d", ErrMalformed, resp.StatusCode)
	}
	if f.seal != nil {
		if body, err = unsealAny(f.seal(), f.label, nonce, body); err != nil {
			return Answer{}, err
		}
	}
	answer, err := decodeAnswer(f.label, body)
	// The status is not sealed, so the body decides; the 404 of another server has no such body and
	// does not count as an answer.
	return answer, err
}

// refusalText returns the printable part of the peer's refusal.
func refusalText(body []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error == "" {
		return "without a reason"
	}
	return fmt.Sprintf("%.200q", said.Error)
}
