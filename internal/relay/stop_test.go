package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Clients send POSTs, which net/http does not repeat by itself, over connections that
// they keep and over new ones, until the relay refuses a connection.
func TestAStopCutsNoRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.relay(func(*Settings) {})
	f.echo("w1")
	var answered atomic.Int64
	for round, repeats := 0, 4; round < 4; round++ {
		// On a busy machine a client may send later than the relay waits for it, and the round shows
		// nothing.
		var late atomic.Bool
		mayRepeat := repeats > 0
		r := f.relay(func(*Settings) {})
		r.settled(t, "echo", 1)
		var clients sync.WaitGroup
		began := answered.Load()
		for n := range 16 {
			clients.Go(func() {
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: n%2 == 0}}
				defer client.CloseIdleConnections()
				var last time.Time // since then the relay may have waited for the next request
				for i := 0; ; i++ {
					if n%2 == 0 || i == 0 { // over a new connection
						last = time.Now()
					}
					err := post(t, client, r)
					if errors.Is(err, syscall.ECONNREFUSED) {
						return
					}
					if hasEnded(err) && time.Since(last) >= lastRequests && mayRepeat {
						late.Store(true)
						return
					}
					if err != nil {
						t.Errorf("round %d, client %d, request %d: %v", round, n, i, err)
						return
					}
					answered.Add(1)
					last = time.Now()
					time.Sleep(time.Duration(40+7*n) * time.Millisecond) // together some 200 a second
				}
			})
		}
		r.await(t, "requests", func() bool { return answered.Load() > began+50 })
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		clients.Wait()
		if strings.Contains(r.log.String(), "still in flight") {
			t.Errorf("round %d: %s", round, r.log)
		}
		if late.Load() {
			repeats--
			round--
		}
	}
	t.Logf("%d requests", answered.Load())
}

// hasEnded reports whether a request failed because the relay had closed its connection.
func hasEnded(err error) bool {
	return err != nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), "server closed idle connection"))
}

// post sends one request and reads the answer.
func post(t *testing.T, client *http.Client, r *runningRelay) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.IngressAddr()+"/", strings.NewReader("x"))
	if err != nil {
		return err
	}
	req.Header.Set("Ringway-Service", "echo")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// The client has not sent anything when the relay stops to listen; its next request is
// on the way.
func TestAConnectionThatIsKeptGetsOneMoreAnswerWhenTheRelayStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	one, two := &http.Client{Transport: &http.Transport{}}, &http.Client{Transport: &http.Transport{Protocols: protocols}}
	for _, client := range []*http.Client{one, two} {
		defer client.CloseIdleConnections()
		if err := post(t, client, r); err != nil {
			t.Fatal(err)
		}
	}
	r.stopping.Store(true)
	ended := make(chan struct{})
	go func() {
		r.endIntake()
		close(ended)
	}()
	r.await(t, "that new connections are refused", func() bool {
		conn, err := net.DialTimeout("tcp", r.IngressAddr(), 20*time.Millisecond)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	for _, client := range []*http.Client{one, two} {
		if err := post(t, client, r); err != nil {
			t.Errorf("the request on a connection that was kept: %v", err)
		}
		if err := post(t, client, r); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the connection goes on after the last answer: %v", err)
		}
	}
	<-ended
}
