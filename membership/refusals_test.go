package membership

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

func TestStrangersCannotFillTheLogWithRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		lines, more := 0, 0
		knock := func(addr string) {
			if worthLine, unlogged := r.add(addr, &RefusalError{Field: fieldCluster}); worthLine {
				lines++
				more += unlogged
			}
		}
		for i := range 600 { // one host, whatever port it comes from and whatever it claims
			knock(fmt.Sprintf("10.0.0.9:%d", 1000+i))
		}
		if lines != 1 {
			t.Errorf("600 refusals of one host in %d lines", lines)
		}
		for i := range 600 { // all of one IPv6 network are one host
			knock(fmt.Sprintf("[2001:db8::%x]:7400", i+1))
		}
		if lines != 2 {
			t.Errorf("600 addresses of one network in %d lines", lines-1)
		}
		for i := range 2000 {
			knock(fmt.Sprintf("10.1.%d.%d:7400", i/250, i%250))
		}
		if lines != maxRefusalLines {
			t.Errorf("2000 hosts in one minute: %d lines, want %d", lines, maxRefusalLines)
		}
		if len(r.inbound) > maxRefusals {
			t.Errorf("%d hosts are remembered", len(r.inbound))
		}
		time.Sleep(refusalQuiet)
		knock("10.0.0.9:1")
		if lines != maxRefusalLines+1 || more != 3200-maxRefusalLines {
			t.Errorf("a minute later %d lines tell of %d others", lines, more)
		}
	})
}

func TestASecondCauseOnAHostIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		certificate := func(reason identity.Reason) RefusalError {
			return RefusalError{Field: fieldCertificate, Cause: &identity.RefusalError{Field: reason}}
		}
		byOther := RefusalError{Field: fieldCertificate, Cause: errors.New("refused by the other end")}
		for _, try := range []struct {
			because RefusalError
			line    bool
		}{
			{RefusalError{Field: fieldCluster}, true}, {RefusalError{Field: fieldCluster}, false},
			{RefusalError{Field: fieldKey}, true}, {RefusalError{Field: fieldKey}, false}, {RefusalError{Field: fieldCluster}, false},
			{certificate("denied"), true}, {certificate("malformed"), true}, {byOther, true},
			{certificate("denied"), false}, {certificate("malformed"), false}, {byOther, false},
		} {
			time.Sleep(time.Second)
			if got, _ := r.add("10.0.0.9:7400", &try.because); got != try.line {
				t.Errorf("%+v: a line is written: %v, want %v", try.because, got, try.line)
			}
		}
		for reason, line := range map[identity.Reason]bool{"denied": true, "expired": true} {
			err := certificate(reason)
			if got, _ := r.record("10.0.0.9:7400", &err); got != line {
				t.Errorf("outgoing, %s: a line is written: %v, want %v", reason, !line, line)
			}
		}
	})
}

// A name that resolves to many addresses, or gossip about many, leads this node to each of them.
func TestAddressesThatRefuseThisNodeCannotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		lines, more := 0, 0
		refused := func(addr, field string) {
			err := &RefusalError{Field: field, Addr: addr}
			worthLine, unlogged := r.record(addr, err)
			if worthLine {
				lines++
				more += unlogged
			}
			if r.get(addr) != err {
				t.Errorf("the refusal of %s is not stored", addr)
			}
		}
		for i := range 1000 {
			refused(fmt.Sprintf("10.1.%d.%d:7400", i/250, i%250), fieldCluster)
		}
		if lines != maxRefusalLines {
			t.Errorf("1000 addresses in one minute: %d lines, want %d", lines, maxRefusalLines)
		}
		if worthLine, _ := r.add("10.0.0.9:1", &RefusalError{Field: fieldCluster}); !worthLine {
			t.Error("refusals by this node get no line")
		}
		refused("10.0.0.9:7400", fieldCluster)
		time.Sleep(refusalQuiet)
		if refused("10.0.0.9:7400", fieldCluster); lines != maxRefusalLines+1 || more != 1001-maxRefusalLines {
			t.Errorf("a minute later %d lines report %d others", lines, more)
		}
		if refused("10.0.0.9:7400", fieldKey); lines != maxRefusalLines+2 {
			t.Error("a second cause gets no line")
		}
	})
}

// What is refused again and again is one entry for ten minutes after the last time. What speaks
// another protocol is no member that is missing.
func TestRefusedProcessesAreListedByHostAndCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		knock := func(addr, field, theirs string) { r.add(addr, &RefusalError{Field: field, Theirs: theirs}) }
		knock("10.0.0.9:1", fieldCluster, "a")
		knock("10.0.0.9:2", fieldCluster, "b")
		knock("10.0.0.9:3", fieldKey, "")
		knock("10.0.0.8:4", fieldMalformed, "")
		knock("[2001:db8::1]:5", fieldRole, "")
		time.Sleep(refusedFor - time.Second)
		knock("10.0.0.9:6", fieldKey, "")
		show := func() (out []string) {
			for _, one := range r.list() {
				out = append(out, fmt.Sprintf("%s %s %d %s", one.Host, one.Field, one.Count, one.Err.(*RefusalError).Theirs))
			}
			return out
		}
		if got, want := show(), []string{"10.0.0.9 cluster 2 b", "10.0.0.9 gossip key 2 ", "2001:db8::/64 role 1 "}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(time.Second)
		if got, want := show(), []string{"10.0.0.9 gossip key 2 "}; !slices.Equal(got, want) {
			t.Errorf("ten minutes later %q, want %q", got, want)
		}
		time.Sleep(refusedFor)
		knock("10.0.0.9:7", fieldKey, "")
		if got, want := show(), []string{"10.0.0.9 gossip key 1 "}; !slices.Equal(got, want) {
			t.Errorf("after a pause %q, want %q", got, want)
		}
	})
}
