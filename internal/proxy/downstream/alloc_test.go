//go:build !race

package downstream_test

// Under the race detector sync.Pool forgets at random, so allocations are counted without it.

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/ringway/ringway/internal/proxy/downstream"
)

func TestARequestOverHTTP2NeedsFewAllocations(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = plainText
		_, _ = w.Write(short)
	})})
	c := streamsTo(t, addr)
	fields := request("GET", "/path", "user-agent", "test", "accept", "*/*")
	buf := make([]byte, 64)
	once := func() {
		s := c.NewStream()
		_ = s.Open(fields, true, false)
		_, _ = s.Answer()
		for {
			if _, err := s.Read(buf); err != nil {
				break
			}
		}
		s.Close()
	}
	for range 100 {
		once()
	}
	// The client of this test counts as well.
	if n := testing.AllocsPerRun(1000, once); n > 3 {
		t.Errorf("%v allocations for each request", n)
	} else {
		t.Log(n)
	}
}

var (
	plainText = []string{"text/plain"}
	short     = bytes.Repeat([]byte("x"), 128)
)
