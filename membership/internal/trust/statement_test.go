package trust

import (
	"errors"
	"testing"
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
