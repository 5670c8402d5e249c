package trust

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheCertificateOfALiveAuthorIsRequestedWhereItGossips(t *testing.T) {
	w := newWire(t)
	author := w.member("author", nil)
	statement := []byte("statement")
	c := Claim{"author", StatementRecord, statement, author.Sign(StatementRecord, statement)}
	for addr, requests := range map[string]int{author.addr: 1, "": 0} {
		to := w.member("to", func(s *setup) {
			s.AddrOf = func(id string) string { return map[string]string{"author": addr}[id] }
		})
		if err := to.Verify(c); !errors.Is(err, ErrUnproven) || len(to.requested) != requests {
			t.Errorf("an author at %q: %v, %d requests, want %d", addr, err, len(to.requested), requests)
		}
		to.sendRequests()
		if err := to.Verify(c); (err == nil) != (requests == 1) {
			t.Errorf("after the requests, of an author at %q: %v", addr, err)
		}
	}
}

// Any member can write a statement in the name of another one, with a key that no certificate has.
func TestStatementsWithUnknownKeysTakeNoPlaceOfAMember(t *testing.T) {
	w := newWire(t)
	author, fresh, by := w.member("author", nil), w.member("fresh", nil), w.member("by", nil)
	to := w.member("to", func(s *setup) {
		s.MaxMembers = 10
		s.AddrOf = func(id string) string { return map[string]string{"author": author.addr}[id] }
	})
	asked := map[string]int{}
	to.send = func(_ []byte, addr string) { asked[addr]++ }
	forge := func(from, to int) (claims []Claim) {
		for n := range to - from {
			signature := binary.BigEndian.AppendUint64(nil, uint64(from+n+1))
			claims = append(claims, Claim{"author", StatementRecord, []byte("statement"), append(signature, make([]byte, signatureSize)...)})
		}
		return claims
	}
	for _, c := range forge(0, 100) {
		if err := to.Verify(c); !errors.Is(err, ErrUnproven) {
			t.Fatal(err)
		}
	}
	if len(to.requested) != 1 {
		t.Errorf("%d certificates of one author are requested, want 1", len(to.requested))
	}
	if !to.parkAlive(fresh.keyOf(), fresh.self, nil, requestSource{from: by.addr, also: fresh.addr}, "by") {
		t.Error("the announcement of a new member has no room")
	}
	// Neither has the author's own announcement to wait, when it has a new certificate.
	if !to.parkAlive(author.keyOf(), author.self, nil, requestSource{from: by.addr, also: author.addr}, "by") {
		t.Error("the announcement of the author has no room")
	}
	if to.sendRequests(); asked[author.addr] > 1 {
		t.Errorf("the author is asked %d times in a round", asked[author.addr])
	}
	// The place is free again when the request ends, and when a member announces that certificate.
	for key, a := range to.requested {
		to.drop(key, a)
	}
	for n, c := range forge(100, 103) {
		_ = to.Verify(c)
		key, _ := signer(c.Signature)
		if to.requested[key] == nil {
			t.Errorf("statement %d: its certificate is not requested", n)
		}
		to.parkAlive(key, author.self, nil, requestSource{from: by.addr}, "by")
	}
}

func TestAStatementMakesAStrangerNoMemberAndOpensNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		author := w.member("author", nil)
		to := w.member("to", func(s *setup) { s.AddrOf = func(string) string { return author.addr } })
		to.request(keyID{1}, requestSource{from: "10.6.6.6:666", stranger: true})
		for key := range byte(3) { // the first two are of one key each, the third finds its author's place taken
			signature := make([]byte, MaxSignature)
			signature[0] = key + 1
			_ = to.Verify(Claim{"author", StatementRecord, nil, signature})
		}
		if len(to.requested) != 2 || to.strangerRequests != 1 || len(to.requested[keyID{1}].from) != 1 {
			t.Errorf("%d requests, %d of strangers, the first asks %q", len(to.requested), to.strangerRequests, to.requested[keyID{1}].from)
		}
		for len(to.requested) > 0 {
			next, dial := to.sendRequests()
			if len(dial) > 0 {
				t.Errorf("a stream is opened to %q", dial)
			}
			time.Sleep(next)
		}
		if len(to.authors)+to.strangerRequests != 0 {
			t.Errorf("%d authors and %d strangers have places that are not used", len(to.authors), to.strangerRequests)
		}
	})
}
