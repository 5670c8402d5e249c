//go:build !race

// These tests run on one goroutine, where the race detector finds nothing and takes ten times as long.

package overload

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// service is endpoints that take slots requests at a time and let the others wait, in the
// order in which they came.
type service struct {
	Limiter
	slots     int
	work      func() time.Duration // of one request
	patience  time.Duration        // of clients; 0: they have no end of it
	opening   time.Duration        // a new connection takes this time of the relay; 0: all are open
	endpoints int
	chance    *rand.Rand

	now     time.Duration
	free    []time.Duration // when each slot is, of what has been taken
	opened  time.Duration   // when the last connection is open
	events  events
	ticked  time.Duration
	refused int
	inTime  int
	asked   int
	longest time.Duration // an answer took
}

type event struct {
	at     time.Duration
	began  time.Duration
	opened time.Duration // when the request had a connection
	gaveUp bool
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func newService(slots int, work time.Duration) *service {
	s := &service{slots: slots, endpoints: 4, chance: rand.New(rand.NewPCG(1, 2)), free: make([]time.Duration, slots)}
	s.work = func() time.Duration { return time.Duration(float64(work) * s.chance.ExpFloat64()) }
	return s
}

// capacity returns how many requests of the mean work these slots complete per second.
func capacity(slots int, work time.Duration) float64 { return float64(slots) / work.Seconds() }

// run sends requests at a rate for some time and reports what became of them.
func (s *service) run(rate float64, span time.Duration) (asked, refused, inTime int, longest time.Duration) {
	end := s.now + span
	s.asked, s.refused, s.inTime, s.longest = 0, 0, 0, 0
	for {
		next := s.now + time.Duration(s.chance.ExpFloat64()/rate*float64(time.Second))
		s.until(min(next, end))
		if next >= end {
			return s.asked, s.refused, s.inTime, s.longest
		}
		s.asked++
		s.send()
	}
}

func (s *service) send() {
	if !s.Enter() {
		s.refused++
		return
	}
	soonest := 0
	for i, at := range s.free {
		if at < s.free[soonest] {
			soonest = i
		}
	}
	opened := s.now
	if s.opening > 0 {
		s.opened = max(s.opened, s.now) + s.opening
		opened = s.opened
	}
	done := max(s.free[soonest], opened) + s.work()
	s.free[soonest] = done
	e := event{at: done, began: s.now, opened: opened}
	if s.patience > 0 && done-s.now > s.patience {
		e.at, e.gaveUp = s.now+s.patience, true
	}
	heap.Push(&s.events, e)
}

// until lets what happens before a time happen.
func (s *service) until(end time.Duration) {
	for {
		next := s.ticked + Every
		if len(s.events) > 0 && s.events[0].at <= next && s.events[0].at <= end {
			e := heap.Pop(&s.events).(event)
			s.now = e.at
			if e.gaveUp {
				s.GaveUp(e.at - e.began)
				continue
			}
			s.Answered(e.at-e.began, e.opened-e.began)
			s.inTime++
			s.longest = max(s.longest, e.at-e.began)
			continue
		}
		if next > end {
			s.now = end
			return
		}
		s.now, s.ticked = next, next
		s.Tick(next, s.endpoints)
	}
}

func TestNothingIsRefusedWhileTheEndpointsKeepUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		work  time.Duration
	}{{"quick", 40, 2 * time.Millisecond}, {"usual", 40, 25 * time.Millisecond}, {"slow", 40, 700 * time.Millisecond}, {"very slow", 100, 10 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(c.slots, c.work)
			most := capacity(c.slots, c.work)
			for i := range 20 {
				load := []float64{0.3, 0.9, 0.1, 0.9, 0.6}[i%5]
				if _, refused, _, _ := s.run(load*most, 10*time.Second); refused > 0 {
					t.Fatalf("%d requests are refused at a load of %v", refused, load)
				}
				if _, refused, _, _ := s.run(3*most, 100*time.Millisecond); refused > 0 {
					t.Fatalf("%d requests of a burst are refused", refused)
				}
			}
		})
	}
}

func TestAnOverloadKeepsTheEndpointsAtWorkAndClientsServed(t *testing.T) {
	for _, c := range []struct {
		name     string
		slots    int
		work     time.Duration
		patience time.Duration
		factor   float64
		longest  time.Duration
	}{
		{"usual", 40, 25 * time.Millisecond, time.Second, 3, time.Second},
		{"patient clients", 40, 25 * time.Millisecond, 30 * time.Second, 3, time.Second},
		{"slight", 40, 25 * time.Millisecond, 30 * time.Second, 1.1, 1500 * time.Millisecond},
		{"heavy", 40, 25 * time.Millisecond, 30 * time.Second, 10, time.Second},
		{"slow", 200, time.Second, 30 * time.Second, 3, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(c.slots, c.work)
			s.patience = c.patience
			most := capacity(c.slots, c.work)
			s.run(0.7*most, 20*time.Second)
			s.run(c.factor*most, 10*time.Second) // until it has settled
			for i := range 10 {
				_, refused, inTime, longest := s.run(c.factor*most, 5*time.Second)
				noise := 4 * math.Sqrt(5*most)
				if float64(inTime) < 0.95*5*most-noise {
					t.Errorf("in round %d %d requests are answered in time, of %.0f that could be", i, inTime, 5*most)
				}
				if refused == 0 && c.factor > 2 {
					t.Errorf("in round %d nothing is refused", i)
				}
				if longest > c.longest+10*c.work {
					t.Errorf("in round %d an answer took %v", i, longest)
				}
			}
			s.run(0.7*most, time.Second+2*c.work)
			if asked, refused, inTime, _ := s.run(0.7*most, 10*time.Second+10*c.work); refused > 0 || float64(inTime) < 0.9*float64(asked) {
				t.Errorf("a second after the overload %d of %d requests are refused, %d answered", refused, asked, inTime)
			}
			if s.Limit() != 0 {
				t.Errorf("the limit %d outlives the overload", s.Limit())
			}
		})
	}
}

// A relay that gets few answers has to see the queue before it is as long as the patience of
// the clients: what waits by then is answered too late, and keeps the endpoints at work for
// seconds.
func TestALimitComesInTimeWhereThereAreFewAnswers(t *testing.T) {
	const work = 40 * time.Millisecond
	for _, slots := range []int{2, 4, 8} { // 50, 100 and 200 answers a second
		for seed := range uint64(20) {
			s := newService(slots, work)
			s.chance, s.patience = rand.New(rand.NewPCG(seed, 2)), 2*time.Second
			s.endpoints = 2
			s.work = func() time.Duration { return work }
			most := capacity(slots, work)
			s.run(0.7*most, 10*time.Second)
			s.run(3*most, 5*time.Second)
			for second := range 10 {
				if _, _, inTime, _ := s.run(3*most, time.Second); float64(inTime) < 0.95*most {
					t.Errorf("seed %d: in the second %d %d requests are answered in time, of %.0f that could be", seed, 5+second, inTime, most)
				}
			}
		}
	}
}

// The endpoints answer each of these requests in 10 ms. Only the connections take long: they
// wait for each other.
func TestABurstThatWaitsForNewConnectionsIsNotRefused(t *testing.T) {
	for _, quiet := range []float64{0, 50, 1000} {
		for _, during := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second} {
			s := newService(400, 10*time.Millisecond)
			for range 3 {
				if s.opening = 0; quiet > 0 {
					s.run(quiet, 10*time.Second)
				}
				s.opening = 900 * time.Microsecond
				s.run(3000/during.Seconds(), during)
				s.until(s.now + 5*time.Second)
				if s.refused > 0 {
					t.Errorf("quiet at %v requests/s: %d of %d requests in %v are refused", quiet, s.refused, s.asked, during)
				}
			}
		}
	}
}

// Connections that open ever later are the endpoints' queue: a full one accepts none.
func TestRequestsThatWaitTooLongForConnectionsAreRefused(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, 10 * time.Second, 0} {
		s := newService(400, 10*time.Millisecond)
		s.run(200, 10*time.Second)
		s.patience, s.opening = patience, 2500*time.Microsecond // 400 a second
		s.run(2000, 15*time.Second)
		if asked, refused, _, _ := s.run(2000, 10*time.Second); refused < asked/2 || s.Waiting() > 4000 {
			t.Errorf("patience %v: %d of %d requests are refused, %d wait", patience, refused, asked, s.Waiting())
		}
	}
}

func TestAServiceWhoseConnectionsNeverOpenIsLimited(t *testing.T) {
	s := newService(400, 10*time.Millisecond)
	s.run(200, 10*time.Second)
	s.patience, s.opening = 5*time.Second, time.Hour
	s.run(1000, 15*time.Second)
	if asked, refused, _, _ := s.run(1000, 10*time.Second); refused < asked*3/4 || s.Waiting() > 2500 {
		t.Errorf("%d of %d requests are refused, %d wait", refused, asked, s.Waiting())
	}
}

func TestALimitLeavesHalfOfTheirPatienceToClientsThatHaveLittle(t *testing.T) {
	for _, patience := range []time.Duration{250 * time.Millisecond, 400 * time.Millisecond} {
		s := newService(40, 10*time.Millisecond)
		s.patience = patience
		most := capacity(40, 10*time.Millisecond)
		s.run(0.7*most, 10*time.Second)
		s.run(3*most, 10*time.Second)
		if _, _, inTime, _ := s.run(3*most, 10*time.Second); float64(inTime) < 0.9*10*most {
			t.Errorf("with a patience of %v %d requests are answered in time, of %.0f that could be", patience, inTime, 10*most)
		}
	}
}

// A service that becomes slower without a queue, as one whose database does, is no
// overload while it keeps up.
func TestAServiceThatBecomesSlowerAndKeepsUpIsNotLimited(t *testing.T) {
	s := newService(10_000, 10*time.Millisecond) // nothing ever waits for a slot
	s.run(500, 20*time.Second)
	for _, work := range []time.Duration{800 * time.Millisecond, 3 * time.Second, 50 * time.Millisecond, 6 * time.Second} {
		s.work = func() time.Duration { return work + time.Duration(float64(work)*0.1*s.chance.ExpFloat64()) }
		if _, refused, _, _ := s.run(500, 30*time.Second); refused > 0 {
			t.Errorf("%d requests are refused after answers began to take %v", refused, work)
		}
	}
}

// Requests that pile up while a service becomes slower for good must not be cut to what
// its old times allow.
func TestALimitThatCostsThroughputGivesWay(t *testing.T) {
	s := newService(400, 10*time.Millisecond)
	s.run(400, 20*time.Second)
	s.work = func() time.Duration {
		return 2*time.Second + time.Duration(float64(100*time.Millisecond)*s.chance.ExpFloat64())
	}
	const most = 400 / 2.1
	s.run(2*most, 30*time.Second)
	if _, _, inTime, _ := s.run(2*most, 20*time.Second); float64(inTime) < 0.9*20*most {
		t.Errorf("%d requests are answered, of %.0f that could be", inTime, 20*most)
	}
}

// Endpoints that notice that clients have gone drop their requests, and are free immediately.
func TestALimitDoesNotWaitForWhatTheEndpointsHaveDropped(t *testing.T) {
	s := newService(40, 25*time.Millisecond)
	s.patience = time.Second
	most := capacity(40, 25*time.Millisecond)
	s.run(0.7*most, 20*time.Second)
	s.run(6*most, 2*time.Second)
	for i := range s.free {
		s.free[i] = s.now
	}
	s.run(3*most, 5*time.Second)
	if limit := float64(s.Limit()); limit < 0.3*most {
		t.Errorf("%v requests may wait where %v are completed in a second", limit, most)
	}
}

// Clients that leave immediately, such as those that had no time left when they came, do not
// show how long answers take.
func TestClientsThatLeaveImmediatelyAreNoFastAnswers(t *testing.T) {
	s := newService(40, 25*time.Millisecond)
	most := capacity(40, 25*time.Millisecond)
	s.run(0.7*most, 20*time.Second)
	for range 10 {
		for range 100 {
			s.Enter()
			s.GaveUp(time.Microsecond)
		}
		s.run(0.7*most, 400*time.Millisecond)
	}
	s.run(3*most, 10*time.Second)
	if _, refused, inTime, longest := s.run(3*most, 5*time.Second); refused == 0 || float64(inTime) < 0.9*5*most || longest > 1500*time.Millisecond {
		t.Errorf("%d requests are refused, %d answered of %.0f that could be, after up to %v", refused, inTime, 5*most, longest)
	}
	var l Limiter // nothing but such clients
	for i := range 100 {
		for range 100 {
			l.Enter()
			l.GaveUp(0)
		}
		l.Tick(time.Duration(i)*Every, 1)
	}
	if l.Limit() != 0 {
		t.Errorf("the limit is %d", l.Limit())
	}
}

// polls is n clients that wait for an event, and ask again as soon as they have it.
func polls(l *Limiter, n int, now, every time.Duration) (refused int) {
	for range int(every / Every) {
		now += Every
		for range n * int(Every) / int(every) {
			l.Answered(every, 0)
			if !l.Enter() {
				refused++
			}
		}
		l.Tick(now, 1)
	}
	return refused
}

func TestLongPollsAreNotTakenForAQueue(t *testing.T) {
	var l Limiter
	const n = 4800
	for range n {
		l.Enter()
	}
	now := time.Duration(0)
	l.Tick(now, 1)
	for _, every := range []time.Duration{time.Second, 30 * time.Second, 2 * time.Second, 60 * time.Second, time.Second} {
		if refused := polls(&l, n, now, every); refused > 0 {
			t.Fatalf("%d polls are refused when events come every %v", refused, every)
		}
		now += every
	}
}

func TestAStallIsNoOverload(t *testing.T) {
	s := newService(100, 10*time.Millisecond)
	s.run(2000, 10*time.Second)
	for range 5 {
		for i := range s.free { // a second in which nothing is completed
			s.free[i] = max(s.free[i], s.now) + 300*time.Millisecond
		}
		if asked, refused, _, _ := s.run(2000, 5*time.Second); refused > 0 {
			t.Errorf("%d of %d requests are refused after a stall", refused, asked)
		}
	}
}

func TestSomeRequestsMayAlwaysWaitForEachEndpoint(t *testing.T) {
	for _, endpoints := range []int{0, 1, 7} {
		s := newService(1, 100*time.Millisecond)
		s.endpoints = endpoints
		s.run(5, 30*time.Second)
		for range 20 {
			s.run(40, 5*time.Second)
			if limit := s.Limit(); limit != 0 && limit < int64(PerEndpoint*max(endpoints, 1)) {
				t.Fatalf("%d requests may wait for %d endpoints", limit, endpoints)
			}
		}
	}
}

// Whatever happens in whatever order, what enters also ends, and no more wait than may.
func TestEveryRequestIsCountedOnce(t *testing.T) {
	for seed := range uint64(50) {
		chance := rand.New(rand.NewPCG(seed, 1))
		var l Limiter
		now, inside := time.Duration(0), int64(0)
		for range 5000 {
			switch kind := chance.IntN(10); {
			case kind < 5:
				before, limit := l.Waiting(), l.Limit()
				if entered := l.Enter(); entered != (limit == 0 || before < limit) {
					t.Fatalf("seed %d: one more than %d waiting requests enters: %v, and the limit is %d", seed, before, entered, limit)
				} else if entered {
					inside++
				}
			case kind < 9 && inside > 0:
				inside--
				took := time.Duration(chance.ExpFloat64() * float64(time.Second))
				[]func(){func() { l.Answered(took, 0) }, func() { l.GaveUp(took) }, l.Left}[chance.IntN(3)]()
			case kind == 9:
				now += time.Duration(chance.Int64N(int64(2 * time.Second)))
				l.Tick(now, chance.IntN(3))
			}
			if l.Waiting() != inside {
				t.Fatalf("seed %d: %d requests wait, counted are %d", seed, inside, l.Waiting())
			}
			if limit := l.Limit(); limit < 0 || limit > 0 && limit < PerEndpoint {
				t.Fatalf("seed %d: the limit is %d", seed, limit)
			}
		}
	}
}

func TestATimeIsWithinItsBucket(t *testing.T) {
	for took := time.Duration(1); took < 2*time.Minute; took += took/50 + 1 {
		b := bucketOf(took)
		if from := lowerOf(b); float64(took) < from {
			t.Fatalf("%v is in the bucket %d, which begins at %v", took, b, time.Duration(from))
		}
		if to := lowerOf(b + 1); b < buckets-1 && float64(took) >= to+float64(shortest/4) {
			t.Fatalf("%v is in the bucket %d, which ends at %v", took, b, time.Duration(to))
		}
	}
}
