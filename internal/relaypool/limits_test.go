package relaypool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

// take asks for n places and keeps them.
func (r *rig) take(n int) (tickets []ticket, err error) {
	for range n {
		tk, err := r.Acquire(Request{}, r.now)
		if err != nil {
			return tickets, err
		}
		tickets = append(tickets, tk)
		r.step()
	}
	return tickets, nil
}

func TestConnectionsAreOpenedOnDemandUpToTheLimitPerPeerAndThenTheErrorIsClear(t *testing.T) {
	cfg := config()
	cfg.Streams = 1
	r := newRig(t, cfg).update(relays(8))
	if _, err := r.take(15); err != nil {
		t.Fatal(err)
	}
	for _, id := range r.status().Primaries {
		want(t, "connections to "+id, r.peer(id).Connections, 5)
	}
	_, err := r.Acquire(Request{}, r.now)
	if !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "connection pool exhausted (17 connections, at most 5 per peer and 100 in total") {
		t.Errorf("the sixteenth: %v", err)
	}
}

func TestTheTotalIsBoundedAndAnIdleConnectionMakesRoom(t *testing.T) {
	cfg := config()
	cfg.Streams, cfg.MaxTotal = 1, 8
	r := newRig(t, cfg).update(relays(8))
	tickets, err := r.take(6) // three on the first connections, three more
	if err != nil {
		t.Fatal(err)
	}
	want(t, "connections", r.status().Connections.Total(), 8)
	if _, err := r.Acquire(Request{}, r.now); !errors.Is(err, ErrExhausted) {
		t.Errorf("beyond the total: %v", err)
	}
	// An extra connection of one primary falls idle; another primary needs one.
	extra := tickets[3]
	r.Release(extra, r.now)
	var others []string
	for _, tk := range tickets {
		if tk.Peer.ID == extra.Peer.ID {
			others = append(others, tk.Peer.ID)
		}
	}
	tk, err := r.Acquire(Request{Exclude: others}, r.now)
	if err != nil {
		t.Fatal(err)
	}
	r.step()
	if r.open[extra.Link] != "" || r.open[tk.Link] == "" {
		t.Error("the idle connection did not make room")
	}
	want(t, "connections", r.status().Connections.Total(), 8)
}

func TestOfIdleConnectionsTheOneThatIsIdleForLongestMakesRoom(t *testing.T) {
	for order := range 2 {
		cfg := config()
		cfg.Streams, cfg.MaxTotal, cfg.Backups = 1, 5, 0
		r := newRig(t, cfg).update(relays(3))
		tickets, err := r.take(5)
		if err != nil {
			t.Fatal(err)
		}
		first, second := tickets[3+order], tickets[4-order] // the extra ones of two primaries
		r.Release(first, r.now)
		r.wait(time.Second).Release(second, r.now)
		if _, err := r.Acquire(Request{Exclude: []string{first.Peer.ID, second.Peer.ID}}, r.now); err != nil {
			t.Fatal(err)
		}
		r.step()
		if r.open[first.Link] != "" || r.open[second.Link] == "" {
			t.Errorf("order %d: the wrong one made room", order)
		}
	}
}

func TestRequestsShareAConnectionUpToItsStreams(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	if _, err := r.take(300); err != nil {
		t.Fatal(err)
	}
	want(t, "connections for 300", r.status().Connections.Total(), 5)
	if _, err := r.take(1); err != nil {
		t.Fatal(err)
	}
	want(t, "connections for 301", r.status().Connections.Total(), 6)
}

func TestAConnectionThatIsFullGetsNoRequestUntilThereIsRoom(t *testing.T) {
	r := newRig(t, config()).update(relays(1))
	before, err := r.take(11)
	if err != nil {
		t.Fatal(err)
	}
	first := before[10].Link
	r.Full(before[10], 10, r.now)
	r.Release(before[0], r.now)
	tickets, err := r.take(11)
	if err != nil {
		t.Fatal(err)
	}
	second, third := tickets[0].Link, tickets[10].Link
	if second == first || third == second || tickets[9].Link != second {
		t.Errorf("after the first connection was full with 10: %+v", tickets)
	}
	r.Report(tickets[0], selection.Success, time.Millisecond, r.now)
	want(t, "the next after an answer", r.request(Request{}).Link, second)
	r.Room(first)
	want(t, "the next after there is room", r.request(Request{}).Link, first)
	want(t, "evicted", r.told(Evicted, Refreshed), []string(nil))
	want(t, "requests", r.peer("r1").Requests, 23)
}

func TestRequestsWaitTogetherForAConnectionThatIsBeingOpened(t *testing.T) {
	r := newRig(t, config())
	r.hold = true
	r.update(relays(1))
	var links []linkID
	for range 100 {
		tk, err := r.Acquire(Request{}, r.now)
		if err != nil || tk.Ready {
			t.Fatal(tk, err)
		}
		links = append(links, tk.Link)
	}
	if links[0] != links[99] {
		t.Error("two connections were opened for what one carries")
	}
	if _, err := r.Acquire(Request{}, r.now); !errors.Is(err, errNotYet) {
		t.Errorf("one too many: %v", err)
	}
}

func TestAnExtraConnectionIsClosedWhenItHasBeenIdleAndTheFirstOneStays(t *testing.T) {
	cfg := config()
	cfg.Streams = 1
	r := newRig(t, cfg).update(relays(1))
	tickets, err := r.take(3)
	if err != nil {
		t.Fatal(err)
	}
	for i, tk := range tickets {
		r.Release(tk, r.now)
		if i == 1 {
			r.wait(100 * time.Second)
		}
	}
	r.step()
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 3}, {199 * time.Second, 3}, {time.Second, 2}, {99 * time.Second, 2}, {time.Second, 1}, {40 * time.Minute, 1}} {
		r.wait(c.after)
		want(t, fmt.Sprintf("connections %v later", c.after), r.status().Connections.Primary, c.want)
	}
}

func TestAnOldConnectionIsReplacedEvenWhereThePeerIsTheOnlyOne(t *testing.T) {
	r := newRig(t, config()).update(relays(1))
	first := r.linkOf("r1")
	tk := r.request(Request{})
	r.wait(time.Hour)
	if r.linkOf("r1") == first {
		t.Error("after an hour the connection is the same")
	}
	want(t, "connections", r.status().Connections, Connections{Primary: 1, Draining: 1})
	r.Release(tk, r.now)
	r.step()
	want(t, "connections", r.status().Connections, Connections{Primary: 1})
	want(t, "events", r.told(Refreshed, Evicted), []string{"refreshed r1 stale primary"})
}

func TestAnOldConnectionStaysWhenNoOtherCanBeOpened(t *testing.T) {
	r := newRig(t, config()).update(relays(1))
	first := r.linkOf("r1")
	r.refuse["r1"] = true
	r.wait(2 * time.Hour)
	want(t, "connection", r.linkOf("r1"), first)
	if n := len(r.told(ConnectFailed)); n == 0 || n > 2*3600*3 {
		t.Errorf("%d attempts", n)
	}
	r.refuse["r1"] = false
	r.wait(time.Second)
	if r.linkOf("r1") == first {
		t.Error("it was not replaced when it could be")
	}
}

func TestADialThatFailsForARequestCountsAgainstThePeer(t *testing.T) {
	cfg := config()
	cfg.Streams = 1
	r := newRig(t, cfg).update(relays(2))
	r.take(2)
	id := r.status().Primaries[0]
	r.refuse[id] = true
	for range 4 {
		if _, err := r.Acquire(Request{Exclude: []string{r.status().Primaries[1]}}, r.now); err != nil {
			t.Fatal(err)
		}
		r.step()
	}
	want(t, "evicted", r.told(Evicted), []string{"evicted " + id + " consecutive_failures primary"})
}

func TestAnExtraConnectionIsIdleFromTheEndOfItsLastRequest(t *testing.T) {
	cfg := config()
	cfg.Streams = 1
	r := newRig(t, cfg).update(relays(1))
	tickets, err := r.take(2)
	if err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute) // without a step: nothing was due
	r.Release(tickets[1], r.now)
	r.wait(cfg.IdleTimeout - time.Second)
	want(t, "connections before the idle time is over", r.status().Connections.Primary, 2)
	r.wait(time.Second)
	want(t, "connections after it", r.status().Connections.Primary, 1)
}

// A step costs more than a request.
func TestARequestOverTheOnlyConnectionOfAPeerAsksForNoStep(t *testing.T) {
	r := newRig(t, config()).update(relays(1))
	tk := r.request(Request{})
	r.Release(tk, r.now)
	want(t, "a step is due", r.pending(), false)
}

func TestWhatAFullConnectionCarriesIsKnownUntilThePeerAllowsAnotherNumber(t *testing.T) {
	for _, c := range []struct{ full, allows, next int }{{10, 0, 10}, {0, 0, 30}, {10, 20, 20}} {
		r := newRig(t, config()).update(relays(1))
		before, err := r.take(11)
		if err != nil {
			t.Fatal(err)
		}
		r.Full(before[10], c.full, r.now)
		r.Room(before[0].Link)
		r.Report(before[0], selection.Success, time.Millisecond, r.now)
		over := r.request(Request{}) // its caller still reads answers that have ended
		r.Report(over, selection.Success, time.Millisecond, r.now)
		if c.allows > 0 {
			r.Allows(over, c.allows)
		}
		r.Full(over, 0, r.now)
		tickets, err := r.take(30)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, one := range tickets {
			if one.Link == tickets[0].Link {
				n++
			}
		}
		if n != c.next {
			t.Errorf("%+v: a new connection gets %d requests", c, n)
		}
	}
}
