package ingress_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// net/http answers 200 for a handler that returns without a word. Nothing ran that the
// client could take for done.
func TestAClientThatClosesItsSideGetsNoMadeUpSuccess(t *testing.T) {
	for name, request := range map[string]string{
		"a GET whose answer is awaited": "GET / HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\n\r\n",
		"a PUT cut in the middle":       "PUT / HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\nContent-Length: 100000\r\n\r\nhalf of it",
	} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{}, 8)
			relay := relayTo(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}), false)
			conn := procs.Dial(t, relay)
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			<-began
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatal(err)
			}
			if strings.HasPrefix(string(answer), "HTTP/1.1 2") {
				t.Errorf("the client was told %q", answer)
			}
		})
	}
}
