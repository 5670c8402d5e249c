package sharedkey

import (
	"testing"
	"time"
)

var epochZero = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestNoMoreThanEightKeysAreRetiredAndTheFirstToExpireGoes(t *testing.T) {
	ring := keyring{}.use(newKey(material(0), "a", 1), sourceGenerated, epochZero, time.Time{})
	for i := range byte(20) {
		ring = ring.accept(newKey(material(100+i), "b", 2), epochZero, epochZero.Add(time.Duration(i+1)*time.Hour))
	}
	if len(ring.retired) != maxRetired {
		t.Fatalf("%d retired keys", len(ring.retired))
	}
	for i := range byte(maxRetired) {
		if !ring.knows(newKey(material(119-i), "b", 2)) {
			t.Errorf("a key that expires late was dropped")
		}
	}
}

func TestARetiredKeyExpiresOnTime(t *testing.T) {
	old := newKey(material(1), "a", 1)
	ring := keyring{}.use(newKey(material(0), "a", 1), sourceGenerated, epochZero, time.Time{}).accept(old, epochZero, epochZero.Add(time.Hour))
	if !ring.expire(epochZero.Add(time.Hour - 1)).knows(old) {
		t.Error("expired early")
	}
	if ring.expire(epochZero.Add(time.Hour)).knows(old) {
		t.Error("expired late")
	}
	if !ring.knows(old) {
		t.Error("expire changed the ring it was called on")
	}
}

func TestADeadlineDoesNotGrowByTravelling(t *testing.T) {
	old, current := newKey(material(1), "b", 2), newKey(material(0), "a", 1)
	until := epochZero.Add(time.Hour)
	a := keyring{}.use(current, sourceGenerated, epochZero, time.Time{}).accept(old, epochZero, until)
	var b keyring
	// The two exchange keys for an hour, each time a minute on the way.
	for at := epochZero; at.Before(until); at = at.Add(2 * time.Minute) {
		for _, pair := range [][2]*keyring{{&a, &b}, {&b, &a}} {
			asker, answerer := pair[1], pair[0]
			answer := Answer{Key: current}
			for _, r := range answerer.expire(at).retired {
				answer.Retired = append(answer.Retired, RetiredKey{r.key, r.until.Sub(at)})
			}
			*asker, _ = asker.learn(peerAnswer{answer: answer, asked: at.Add(-time.Minute), now: at.Add(time.Minute), retire: 24 * time.Hour})
		}
	}
	for _, ring := range []keyring{a, b} {
		if ring.expire(until).knows(old) {
			t.Fatal("the key outlived its time")
		}
	}
}

func TestAPeerCannotMakeARetiredKeyLastLongerThanRetire(t *testing.T) {
	old := newKey(material(1), "b", 2)
	ring, fork := keyring{}.learn(peerAnswer{
		answer: Answer{Key: newKey(material(0), "a", 1), Retired: []RetiredKey{{old, 1 << 62}}},
		asked:  epochZero, now: epochZero, retire: time.Hour,
	})
	if fork || !ring.knows(old) || ring.expire(epochZero.Add(time.Hour)).knows(old) {
		t.Fatalf("fork %t, ring %v", fork, ring.retired)
	}
}

func TestAKeyThatComesBackIntoUseIsNotRetired(t *testing.T) {
	a, b := newKey(material(0), "a", 1), newKey(material(1), "b", 2)
	ring := keyring{}.use(b, sourceFallback, epochZero, time.Time{}).use(a, sourcePeer, epochZero, epochZero.Add(time.Hour)).use(b, sourceFile, epochZero, epochZero.Add(time.Hour))
	if !ring.current.Equal(b) || ring.find(b) >= 0 || ring.find(a) < 0 {
		t.Fatalf("in use %v, retired %v", ring.current, ring.retired)
	}
}

func TestTheSameKeyGivenByAnOperatorGetsHisStampAndIsNoChange(t *testing.T) {
	generated, given := newKey(material(0), "a", 1), newKey(material(0), "", 0)
	ring := keyring{}.use(generated, sourceGenerated, epochZero, time.Time{})
	later := epochZero.Add(time.Hour)
	ring, fork := ring.learn(peerAnswer{answer: Answer{Key: given}, asked: later, now: later, retire: time.Hour})
	if fork || !ring.current.given() || !ring.since.Equal(epochZero) || len(ring.retired) != 0 || ring.source != sourceGenerated {
		t.Fatalf("fork %t, ring %+v", fork, ring)
	}
}

func TestAKeyringThatWasPublishedDoesNotChange(t *testing.T) {
	old := newKey(material(1), "b", 2)
	published := keyring{}.use(newKey(material(0), "a", 1), sourceGenerated, epochZero, time.Time{}).accept(old, epochZero, epochZero.Add(time.Hour))
	published.accept(old, epochZero, epochZero.Add(2*time.Hour))
	if got := published.retired[0].until; !got.Equal(epochZero.Add(time.Hour)) {
		t.Fatalf("the deadline moved to %v", got)
	}
}
