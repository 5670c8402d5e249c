package upstream_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// The pool's own.
const (
	restShort, restLong  = 20 * time.Millisecond, 100 * time.Millisecond
	careTime             = 5 * time.Minute
	cleanRests, maxShort = 64, 32
)

// ask carries one request to an endpoint whose dials all succeed, and reports whether it was
// sent over a connection that another request has used.
func (p *pipes) ask(t *testing.T, method, path string) (reused bool) {
	t.Helper()
	done := p.carry(t.Context(), method, path, upstream.Options{})
	for {
		select {
		case c := <-done:
			if c.err != nil {
				t.Fatalf("%s %s: %v", method, path, c.err)
			}
			return c.res.Reused
		case d := <-p.dials:
			d.succeed()
		}
	}
}

// answering answers HEAD and GET without a body for /none, otherwise with the path. What comes
// after a question mark follows the answer.
func answering(path string) string {
	if path == "/none" {
		return "HTTP/1.1 204 No Content\r\n\r\n"
	}
	text := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	if path == "/more" {
		text += foreign
	}
	return text
}

func TestAConnectionRestsAfterAnAnswerWithoutABodyUntilTheEndpointHasShownThatNothingFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{})
		p.answer = answering
		after := func(pause time.Duration) bool {
			p.ask(t, http.MethodGet, "/none")
			time.Sleep(pause)
			return p.ask(t, http.MethodGet, "/")
		}
		if after(restLong - time.Millisecond) {
			t.Error("a connection was used again before it has rested")
		}
		p.pool.Close()
		p.end(t)

		p = newPipes(t, upstream.Config{})
		p.answer = answering
		for range cleanRests {
			if p.ask(t, http.MethodGet, "/none"); p.pool.Stats().Open != 1 {
				t.Fatalf("a connection that had rested was not used: %+v", p.pool.Stats())
			}
			time.Sleep(restLong)
		}
		p.ask(t, http.MethodGet, "/") // ends the last of the rests
		if after(restShort - time.Millisecond) {
			t.Error("a connection was used again before its short rest")
		}
		before := p.pool.Stats().Dials
		if after(restShort); p.pool.Stats().Dials != before {
			t.Error("a connection rests for longer, although nothing has come in many rests")
		}
		p.end(t)
	})
}

func TestAnEndpointThatHasSentUnaskedBytesIsTreatedWithCareAfterAllItsAnswersForMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var activity upstream.Activity
		p := newPipes(t, upstream.Config{IdleTimeout: time.Hour, Activity: &activity})
		p.answer = answering
		if p.ask(t, http.MethodGet, "/"); !p.ask(t, http.MethodGet, "/more") {
			t.Fatal("the connection to an endpoint that did nothing wrong was not used again")
		}
		for _, step := range []struct {
			pause  time.Duration
			reused bool
			why    string
		}{
			{0, false, "the connection with unasked bytes was used again"},
			{restLong - time.Millisecond, false, "a connection was used again before it has rested"},
			{restLong, true, "a connection that has rested was not used again"},
			{careTime, true, "a connection that has rested was not used again"},
			{0, true, "the care did not end"},
		} {
			time.Sleep(step.pause)
			if p.ask(t, http.MethodGet, "/") != step.reused {
				t.Error(step.why)
			}
		}
		if n := activity.Unasked.Load(); n != 1 {
			t.Errorf("%d connections with unasked bytes were counted, want 1", n)
		}
		p.end(t)
	})
}

// An endpoint whose answers have no bodies gets a bounded number of connections more than
// there are requests at a time, and keeps them.
func TestAnEndpointWhoseAnswersHaveNoBodiesGetsFewMoreConnectionsAndKeepsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{})
		p.answer = answering
		for range 2 * cleanRests { // 100 requests per second
			p.ask(t, http.MethodHead, "/none")
			time.Sleep(10 * time.Millisecond)
		}
		for range 100 * maxShort { // without a pause
			p.ask(t, http.MethodGet, "/none")
		}
		if s := p.pool.Stats(); s.Open > maxShort+1 || s.Dials > maxShort+20 {
			t.Errorf("%+v, want at most %d connections", s, maxShort+1)
		}
		p.end(t)
	})
}

// RFC 9110 §15.5.9: a server may end a connection that waits for a request by an answer 408.
func TestAnAnswerToAnIdleConnectionThatTimedOutIsNoReasonForCare(t *testing.T) {
	for text, careful := range map[string]bool{
		"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n": false,
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":              true,
	} {
		answered, wrote := make(chan struct{}), make(chan struct{})
		addr := rawEndpoint(t, func(n int, c *rawConn) {
			for r, _ := c.request(); r != nil; r, _ = c.request() {
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if r.URL.Path == "/last" {
					<-answered
					c.say(text)
					wrote <- struct{}{}
				}
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
		in.get(t, "/last")
		answered <- struct{}{}
		within(t, wrote, "what follows")
		for range 3 {
			in.get(t, "/")
		}
		if dials := in.pool.Stats().Dials; (dials > 2) != careful {
			t.Errorf("%d connections after %q", dials, strings.SplitN(text, "\r", 2)[0])
		}
	}
}
