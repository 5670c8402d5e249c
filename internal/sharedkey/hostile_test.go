package sharedkey

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAHostileAnswerCostsTheTimeoutAtMostAndIsNoKey has a peer answer in every way that costs
// its asker something. No answer becomes a key, or means that there is none.
func TestAHostileAnswerCostsTheTimeoutAtMostAndIsNoKey(t *testing.T) {
	const timeout = 300 * time.Millisecond
	flush := func(w http.ResponseWriter) { w.(http.Flusher).Flush() }
	good := fmt.Sprintf(`{"format":1,"key":{"material":"%x","epoch":1,"generated_by":"r"}}`, material(1))
	for name, answer := range map[string]http.HandlerFunc{
		"without end": func(w http.ResponseWriter, _ *http.Request) {
			for block := bytes.Repeat([]byte{' '}, 64<<10); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
		"byte by byte": func(w http.ResponseWriter, r *http.Request) {
			for _, b := range []byte(strings.Repeat(good, 100)) {
				if _, err := w.Write([]byte{b}); err != nil {
					return
				}
				flush(w)
				select {
				case <-time.After(timeout / 20):
				case <-r.Context().Done():
					return
				}
			}
		},
		"a head and then silence": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			flush(w)
			<-r.Context().Done()
		},
		"a compressed bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			_, _ = packed.Write(bytes.Repeat([]byte{' '}, 64<<20))
			_ = packed.Close()
		},
		"interim answers": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		},
		"fields without end": func(w http.ResponseWriter, _ *http.Request) {
			for n := range 20_000 {
				w.Header().Set(fmt.Sprintf("X-%d", n), strings.Repeat("x", 1000))
			}
			_, _ = io.WriteString(w, good)
		},
		"deep JSON": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("[", maxAnswer-1))
		},
		"a redirect to itself": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			defer server.CloseClientConnections()
			begun := time.Now()
			_, err := fetchFrom(t, member(server.Listener.Addr()), func(c *Config) { c.Timeout = timeout })
			took := time.Since(begun)
			if err == nil || errors.Is(err, ErrNoKey) {
				t.Errorf("taken: %v", err)
			}
			if took > 10*timeout {
				t.Errorf("took %v, the timeout is %v", took, timeout)
			}
		})
	}
}

// TestAHostileRelayPushesOutNoKeyInUse has one relay answer with other keys each time. Cookies that
// the key in use signed stay valid.
func TestAHostileRelayPushesOutNoKeyInUse(t *testing.T) {
	k, _ := serve(t, func(c *Config) {})
	message := []byte("session")
	mac := k.Sign(message)
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := Answer{}
		for i := range 1 + maxRetired {
			n++
			key := newKey(bytes.Repeat([]byte(fmt.Sprintf("%032d", n)), 1), "liar", uint64(1+n))
			if i == 0 {
				a.Key = key
			} else {
				a.Retired = append(a.Retired, RetiredKey{key, 1 << 62})
			}
		}
		body, err := encodeAnswer(k.cfg.Label, a)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	liar := member(server.Listener.Addr())
	for range 50 {
		k.learn([]reply{k.askOne(t.Context(), liar)})
		if ring := k.ring.Load(); len(ring.retired) > maxRetired {
			t.Fatalf("%d retired keys", len(ring.retired))
		}
	}
	if !k.Verify(message, mac) {
		t.Error("a cookie that the given key signed is not valid any more")
	}
	if got := k.Sign(message); !bytes.Equal(got, mac) {
		t.Error("the key that an operator gave was replaced by that of another relay")
	}
}

// TestAKeyThatWasUsedForLongOutlivesAFloodOfOlderOnes has a relay state an older key each second, where
// operators gave none. Each replaces the key before it, and cookies of before the attack stay valid.
func TestAKeyThatWasUsedForLongOutlivesAFloodOfOlderOnes(t *testing.T) {
	const retire, stated = 24 * time.Hour, 200
	begun := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	honest := newKey(material(1), "r1", 1_000_000)
	ring := keyring{}.use(honest, sourceGenerated, begun, begun)
	now := begun.Add(time.Hour)
	lie := func(n int) Key { return newKey(fmt.Appendf(nil, "%032d", n), "liar", uint64(500_000-n)) }
	for n := range stated {
		now = now.Add(time.Second)
		a := Answer{Key: lie(n)}
		for i := range maxRetired {
			a.Retired = append(a.Retired, RetiredKey{lie(1000 + n*maxRetired + i), 1 << 62})
		}
		ring, _ = ring.expire(now).learn(peerAnswer{answer: a, asked: now, now: now, retire: retire})
		if !ring.knows(honest) || len(ring.retired) > maxRetired {
			t.Fatalf("after %d older keys cookies of the key before are refused; %d keys are retired", n+1, len(ring.retired))
		}
	}
	if !ring.current.Equal(lie(stated - 1)) {
		t.Error("the older key does not win: relays would not agree")
	}
	if now = begun.Add(time.Hour + retire); !ring.expire(now).knows(honest) {
		t.Error("the key has expired early")
	}
	if now = now.Add(time.Minute); ring.expire(now).knows(honest) {
		t.Error("the key does not expire")
	}
}
