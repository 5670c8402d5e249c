//go:build linux

package hostile

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
)

// signed is a record of the turncoat with a sequence of its choice, signed as it should be.
func (c *turncoat) signed(t *testing.T, sequence uint64, services ...advertise.Service) []byte {
	t.Helper()
	raw, err := advertise.Record{NodeID: c.id, Epoch: c.node.Epoch(), Sequence: sequence, Services: services}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const fields = 6 // a signature follows the five fields of the statement
	signature := c.node.Sign(membership.StatementRecord, raw[1:])
	raw = append([]byte{kindRecord, 0x90 | fields}, raw[1:]...)
	return says(recordTopic, append(append(raw, 0xc4, byte(len(signature))), signature...)...)
}

// received counts the records that a relay received with a result.
func (f *fleet) received(r *relay, result string) float64 {
	return f.metrics(r.Admin, "ringway_advertise_records_received_total", func(series string) bool { return strings.Contains(series, `"`+result+`"`) })
}

// TestOfTwoRecordsWithOneSequenceAllRelaysUseTheSame has a turncoat sign two records with one
// sequence and send one to each relay. Afterwards it replays both, behind a newer one.
func TestOfTwoRecordsWithOneSequenceAllRelaysUseTheSame(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	c := startTurncoat(t, f)
	c.silence() // it would replace the records that it did not publish
	o := newSender(t, f, c.packets)
	const sequence = 1 << 40
	names := []string{"twice-a", "twice-b"}
	var records [][]byte
	for _, name := range names {
		records = append(records, c.signed(t, sequence, advertise.Service{Name: name, Address: c.sidecar, Secured: true}))
	}
	stop := keepDoing(t, func() {
		for i, r := range f.Relays {
			o.send([]string{r.Gossip}, records[i])
		}
	})
	offered := func(r *relay) (found []string) {
		all, _ := f.services(r)
		return slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(names, name) })
	}
	procs.Await(t, "both relays use the same record", func() bool {
		first, second := offered(f.Relays[0]), offered(f.Relays[1])
		return len(first) == 1 && slices.Equal(first, second)
	})
	during(t, watching, func() error {
		first, second := offered(f.Relays[0]), offered(f.Relays[1])
		if len(first) != 1 || !slices.Equal(first, second) {
			return fmt.Errorf("r1 has %v, r2 has %v", first, second)
		}
		return f.served(2)
	})
	stop()

	newer := c.signed(t, sequence+1, advertise.Service{Name: "newer", Address: c.sidecar, Secured: true})
	keepDoing(t, func() { o.send(f.gossipOf(false), newer) })
	for _, r := range f.Relays {
		procs.Await(t, "the newer record arrives at "+r.ID, func() bool { return f.offers(r, "newer") })
	}
	old := f.received(f.Relays[0], "old")
	keepDoing(t, func() { o.send(f.gossipOf(false), records...) })
	procs.Await(t, "the old records arrive again", func() bool { return f.received(f.Relays[0], "old") > old+10 })
	for _, r := range f.Relays {
		if got := offered(r); len(got) > 0 || !f.offers(r, "newer") {
			t.Errorf("%s believes the old record again: %v", r.ID, got)
		}
	}
}

// TestAFloodOfSignedRecordsIsTakenTwiceASecond has a turncoat publish as fast as it can. It runs
// alone: other attacks at the same time take the processors of a slow machine, and a drain its time.
func TestAFloodOfSignedRecordsIsTakenTwiceASecond(t *testing.T) {
	const burst, flood = 60, 2000
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	c := startTurncoat(t, f)
	c.silence()
	o, r := newSender(t, f, c.packets), f.Relays[0]
	applied, limited := f.received(r, "applied"), f.received(r, "limited")
	for n := range uint64(flood) {
		o.send([]string{r.Gossip}, c.signed(t, 1<<40+n, advertise.Service{Name: own, Address: c.sidecar, Secured: true}))
	}
	procs.Await(t, "the flood arrives", func() bool { return f.received(r, "limited") > limited+burst })
	for last := -1.0; last != f.received(r, "limited"); time.Sleep(200 * time.Millisecond) { // and is over
		last = f.received(r, "limited")
	}
	// Other members' own records are among those that are applied.
	if got := f.received(r, "applied") - applied; got > 3*burst {
		t.Errorf("%v records of the flood were taken", got)
	}
	if times := f.drains(f.Workers[0], 3); slices.Min(times) > maxDrain {
		t.Errorf("drains reached the relays after %v", times)
	}
	f.serves(10)
}

// TestAServiceThatLiesAboutItsLoadIsNotBelieved has the services of both workers, behind their
// sidecars, answer with the largest load. The scores of their workers do not have it.
func TestAServiceThatLiesAboutItsLoadIsNotBelieved(t *testing.T) {
	t.Parallel()
	const asked, most = 50, 60_000 // milliseconds: the lie is worth more than any latency
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 2})
	r := f.Relays[0]
	for range asked {
		if status, body := f.ask(r, echo, http.MethodGet, "/load"); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
	}
	var got struct {
		Peers []struct {
			Node     string
			Score    float64
			Requests uint64
		}
	}
	f.Get(r, "/api/v1/services/"+echo, &got)
	if len(got.Peers) != len(f.Workers) {
		t.Fatalf("the relay has the peers %+v", got.Peers)
	}
	for _, p := range got.Peers {
		if p.Score > most {
			t.Errorf("after %d requests %s has the score %v ms: the lie of its service counts", p.Requests, p.Node, p.Score)
		}
	}
}

// TestForgedCookiesPinNoRequest has a client send cookies that it made up, or changed.
func TestForgedCookiesPinNoRequest(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 2, RelayArgs: []string{"--session-cookie", echo + "=sid"}})
	r := f.Relays[0]
	ask := func(cookie string) (status int, worker string, set []*http.Cookie) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Ingress+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(serviceHeader, echo)
		if cookie != "" {
			req.Header.Set("Cookie", cookie)
		}
		resp, err := f.client.Do(req)
		if err != nil {
			return 0, err.Error(), nil
		}
		defer func() { _ = resp.Body.Close() }()
		body := make([]byte, 64)
		n, _ := resp.Body.Read(body)
		return resp.StatusCode, string(body[:n]), resp.Cookies()
	}
	var good string
	procs.Await(t, "the relay sets a cookie", func() bool {
		_, _, set := ask("")
		if len(set) == 1 {
			good = set[0].Value
		}
		return good != ""
	})
	if _, _, set := ask("sid=" + good); len(set) != 0 {
		t.Fatal("the relay does not accept its own cookie: this test proves nothing")
	}
	forged := []string{"x", strings.Repeat("A", len(good)), strings.Repeat("A", 4000), good[:len(good)-1], good + "A", good + "; sid=" + good[:10]}
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		changed := slices.Clone(raw)
		changed[i] ^= 1
		forged = append(forged, base64.RawURLEncoding.EncodeToString(changed))
	}
	for _, value := range forged[:len(forged)-1] {
		if strings.HasPrefix(value, good+";") {
			continue // the first of two counts, and it is good
		}
		status, worker, set := ask("sid=" + value)
		if status != http.StatusOK || len(set) != 1 || set[0].Value == value {
			t.Errorf("the cookie %.40q: %d %.80s, %d cookies are set", value, status, worker, len(set))
		}
	}
	rejected := f.metrics(r.Admin, "ringway_relay_session_cookies_total", func(series string) bool {
		return strings.Contains(series, `"signature"`) || strings.Contains(series, `"malformed"`)
	})
	if rejected < float64(len(forged)/2) {
		t.Errorf("%v of %d forged cookies are counted", rejected, len(forged))
	}
	f.serves(5)
}
