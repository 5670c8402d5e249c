package membership

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// A packet of memberlist has about this much room, and this much goes with each message.
const (
	packetRoom      = 1350
	messageOverhead = 3
)

func testQueue(members int, evicted func()) *queue {
	if evicted == nil {
		evicted = func() {}
	}
	return newQueue(func() int { return members }, evicted)
}

// sized is a message that contains its number, of a length.
func sized(n, size int) []byte {
	return append(bytes.Repeat([]byte{'.'}, size-8), fmt.Sprintf("%08d", n)...)
}

// memberlist's queue loses some of these: after it was empty a new message gets the
// number of an old one.
func TestNoMessageOfALengthDisplacesAnotherOfThatLength(t *testing.T) {
	q := testQueue(18, nil)
	sent, next := map[string]int{}, 0
	take := func() {
		for _, m := range q.take(messageOverhead, packetRoom) {
			sent[string(m[len(m)-8:])]++
		}
	}
	for range 500 {
		for _, count := range []int{1, 2, 8} {
			for range count {
				q.add("worker-"+strconv.Itoa(next), sized(next, 440))
				next++
			}
			take()
		}
		for range 20 {
			take()
		}
	}
	for q.len() > 0 {
		take()
	}
	for n := range next {
		if got := sent[fmt.Sprintf("%08d", n)]; got != q.copies() {
			t.Fatalf("message %d of %d was sent %d times, want %d", n, next, got, q.copies())
		}
	}
}

// slowQueue does what the queue does in the plainest way.
type slowQueue struct {
	items           []slowItem
	stamp           int
	messages, bytes int
	evicted         int
}

type slowItem struct {
	name    string
	message []byte
	sent    int
	stamp   int // when it came to have been sent so often
}

func (q *slowQueue) size() (n int) {
	for _, i := range q.items {
		n += len(i.message)
	}
	return n
}

func (q *slowQueue) put(i slowItem) {
	q.stamp++
	i.stamp = q.stamp
	q.items = append(q.items, i)
}

func (q *slowQueue) drop(name string) {
	q.items = slices.DeleteFunc(q.items, func(i slowItem) bool { return i.name == name })
}

func (q *slowQueue) add(name string, message []byte) {
	q.drop(name)
	for len(q.items) > 0 && (len(q.items) >= q.messages || q.size()+len(message) > q.bytes) {
		worst := slices.MaxFunc(q.items, func(a, b slowItem) int {
			return cmp.Or(cmp.Compare(a.sent, b.sent), cmp.Compare(b.stamp, a.stamp))
		})
		q.drop(worst.name)
		q.evicted++
	}
	q.put(slowItem{name: name, message: message})
}

func (q *slowQueue) take(overhead, limit, copies int) (packet [][]byte) {
	slices.SortFunc(q.items, func(a, b slowItem) int {
		return cmp.Or(cmp.Compare(a.sent, b.sent), cmp.Compare(a.stamp, b.stamp))
	})
	used, passedOver := 0, 0
	for _, i := range slices.Clone(q.items) {
		if used+overhead >= limit || passedOver == maxPassedOver {
			break
		}
		if used+overhead+len(i.message) > limit {
			passedOver++
			continue
		}
		used += overhead + len(i.message)
		packet = append(packet, i.message)
		q.drop(i.name)
		if i.sent++; i.sent < copies {
			q.put(i)
		}
	}
	return packet
}

func TestTheQueueDoesWhatThePlainestOneDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		members, evicted := 1, 0
		q := newQueue(func() int { return members }, func() { evicted++ })
		q.messages, q.bytes = rapid.IntRange(1, 60).Draw(rt, "messages"), rapid.IntRange(500, 9000).Draw(rt, "bytes")
		slow := &slowQueue{messages: q.messages, bytes: q.bytes}
		for n := range rapid.IntRange(1, 200).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"add", "add", "take", "take", "members"}).Draw(rt, "op") {
			case "add":
				name := strconv.Itoa(rapid.IntRange(0, 70).Draw(rt, "name"))
				message := sized(n, rapid.SampledFrom([]int{8, 100, 440, 440, 440, maxBroadcast}).Draw(rt, "size"))
				q.add(name, message)
				slow.add(name, message)
			case "take":
				limit := rapid.IntRange(0, packetRoom).Draw(rt, "limit")
				got, want := q.take(messageOverhead, limit), slow.take(messageOverhead, limit, q.copies())
				if !slices.EqualFunc(got, want, bytes.Equal) {
					rt.Fatalf("step %d, %d bytes: %d messages, want %d: %q, want %q", n, limit, len(got), len(want), got, want)
				}
				used := 0
				for _, m := range got {
					used += messageOverhead + len(m)
				}
				if used > limit {
					rt.Fatalf("%d bytes in a packet of %d", used, limit)
				}
			case "members":
				members = rapid.SampledFrom([]int{0, 1, 30, 10_000}).Draw(rt, "members")
			}
			if q.len() != len(slow.items) || q.queued != slow.size() || evicted != slow.evicted {
				rt.Fatalf("step %d: %d messages of %d bytes, %d evicted, want %d of %d, %d", n, q.len(), q.queued, evicted, len(slow.items), slow.size(), slow.evicted)
			}
		}
	})
}

func TestAFullQueueDropsWhatWasSentMostOftenAndCountsIt(t *testing.T) {
	evicted := 0
	q := testQueue(10, func() { evicted++ })
	q.messages = 3
	q.add("old", sized(1, 100))
	q.take(messageOverhead, packetRoom)
	for n, name := range []string{"a", "b", "c"} {
		q.add(name, sized(n, 100))
	}
	if evicted != 1 || q.byName["old"] != nil || q.len() != 3 {
		t.Errorf("%d evicted, %d left, the one that was sent is among them: %v", evicted, q.len(), q.byName["old"] != nil)
	}
	q.bytes = 350
	q.add("d", sized(9, 200))
	if evicted != 3 || q.len() != 2 || q.byName["c"] == nil || q.byName["d"] == nil {
		t.Errorf("%d evicted, left are %v, want c and d", evicted, q.byName)
	}
}

func TestManyMayUseTheQueueConcurrently(t *testing.T) {
	q := testQueue(10, nil)
	const writers, messages = 4, 200
	var (
		tasks sync.WaitGroup
		left  atomic.Int64
		mu    sync.Mutex
	)
	left.Store(writers)
	sent := map[string]int{}
	for w := range writers {
		tasks.Go(func() {
			defer left.Add(-1)
			for n := range messages {
				q.add(fmt.Sprint(w, n), sized(w*messages+n, 440))
			}
		})
		tasks.Go(func() {
			for left.Load() > 0 || q.len() > 0 {
				for _, m := range q.take(messageOverhead, packetRoom) {
					mu.Lock()
					sent[string(m)]++
					mu.Unlock()
				}
			}
		})
	}
	tasks.Wait()
	if len(sent) != writers*messages {
		t.Fatalf("%d messages were sent, want %d", len(sent), writers*messages)
	}
	for m, n := range sent {
		if n != q.copies() {
			t.Fatalf("%s was sent %d times, want %d", m[len(m)-8:], n, q.copies())
		}
	}
}

func BenchmarkAPacketOutOfAFullQueue(b *testing.B) {
	for _, size := range []int{10, 1000, maxQueued} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			q := testQueue(10_000, nil)
			for n := range size {
				q.add(strconv.Itoa(n), sized(n, 440))
			}
			for n := 0; b.Loop(); n++ {
				if len(q.take(messageOverhead, packetRoom)) == 0 {
					b.Fatal("nothing was sent")
				}
				q.add(strconv.Itoa(n%size), sized(n, 440))
				q.add(strconv.Itoa((n+7)%size), sized(n, 440))
			}
		})
	}
}
