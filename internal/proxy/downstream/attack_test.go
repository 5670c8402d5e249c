package downstream_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

func TestHalfHeadsDoNotKeepOtherClientsFromTheirAnswers(t *testing.T) {
	const attackers = 500
	var reading, incomplete atomic.Int64
	addr, _ := start(t, downstream.Config{
		HeadTimeout: 2 * time.Second,
		Incomplete:  func() { incomplete.Add(1) },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateActive {
				reading.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
	})
	conns := make([]*client, attackers)
	for i := range conns {
		conns[i] = dial(t, addr).say("GET / HTTP/1.1\r\nHost: a\r\nX: ")
	}
	procs.Await(t, "the half heads", func() bool { return reading.Load() == attackers })
	served := dial(t, addr)
	// Each half head grows by a byte now and then: that gives it no further time.
	for end := time.Now().Add(patience); incomplete.Load() < attackers; {
		if time.Now().After(end) {
			t.Fatalf("only %d half heads were given up", incomplete.Load())
		}
		for _, c := range conns {
			_, _ = c.Conn.Write([]byte("x")) // fails after the server has closed it
		}
		if _, body := served.say(get).answer("GET"); body != "ok" {
			t.Fatal(body)
		}
	}
	if _, body := served.say(get).answer("GET"); body != "ok" {
		t.Error(body)
	}
}

func TestAHeadBeyondTheLimitIsRefusedBeforeItsEnd(t *testing.T) {
	const limit = 64 << 10
	addr, _ := start(t, downstream.Config{MaxHead: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, len(r.Header.Get("X")))
	})})
	whole := sized(limit)
	if resp, body := dial(t, addr).say(whole).answer("GET"); resp.StatusCode != http.StatusOK || body != fmt.Sprint(limit-len(with("X: "))) {
		t.Errorf("the largest head: %d %s", resp.StatusCode, body)
	}
	for name, head := range map[string]string{
		"one byte more":          sized(limit + 1),
		"one byte more, no end":  sized(limit + 5)[:limit+1],
		"one line without end":   "GET /" + strings.Repeat("x", limit),
		"short lines, no end":    with(strings.Repeat("X: y\r\n", limit/6+1))[:limit+1],
		"a name that never ends": with(strings.Repeat("x", limit))[:limit+1],
	} {
		c := dial(t, addr).say(head)
		if resp, _ := c.answer("GET"); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !resp.Close {
			t.Errorf("%s: %d, closes %v", name, resp.StatusCode, resp.Close)
		}
		c.ends()
	}
}

// A client that sends and does not read must not make the server gather its answers, or its
// requests.
func TestAClientThatReadsNoAnswersIsNotReadFrom(t *testing.T) {
	const (
		requests = 10_000
		size     = 8 << 10
		growth   = 4 << 20
	)
	answer := make([]byte, size)
	var served atomic.Int64
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = w.Write(answer)
	})})
	before := heap()
	c := dial(t, addr)
	var sending sync.WaitGroup
	sending.Go(func() {
		batch := strings.Repeat(get, 100)
		for range requests / 100 {
			if _, err := io.WriteString(c.Conn, batch); err != nil {
				t.Error(err)
				return
			}
		}
	})
	last := int64(-1)
	procs.Await(t, "a server that waits", func() bool {
		now := served.Load()
		waits := now == last && now > 0
		last = now
		time.Sleep(100 * time.Millisecond) // between two checks
		return waits
	})
	if last > requests/2 {
		t.Errorf("%d of %d requests were answered although no answer was read", last, requests)
	}
	if grown := heap() - before; grown > growth {
		t.Errorf("the heap grew by %d bytes, want at most %d", grown, growth)
	}
	for range requests {
		if _, body := c.answer("GET"); len(body) != size {
			t.Fatalf("an answer of %d bytes", len(body))
		}
	}
	sending.Wait()
}

func TestChunksOfOneByteAreReadAndTheirOverheadIsBounded(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprint(w, read)
	})})
	const n = 20_000
	for _, c := range []struct {
		name, chunk string
		status      int
	}{
		{"bare", "1\r\nx\r\n", http.StatusOK},
		{"with extensions", "1;" + strings.Repeat("y", 100) + "\r\nx\r\n", http.StatusBadRequest},
	} {
		conn := dial(t, addr)
		var sending sync.WaitGroup
		sending.Go(func() {
			_, _ = io.WriteString(conn.Conn, chunks(""))
			for range n {
				if _, err := io.WriteString(conn.Conn, c.chunk); err != nil {
					return // refused meanwhile
				}
			}
			_, _ = io.WriteString(conn.Conn, "0\r\n\r\n")
		})
		resp, body := conn.answer("POST")
		if resp.StatusCode != c.status || (body == fmt.Sprint(n)) != (c.status == http.StatusOK) {
			t.Errorf("%s: %d after %s bytes", c.name, resp.StatusCode, body)
		}
		_ = conn.Close()
		sending.Wait()
	}
}

// heap is what is allocated after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
