package advertise

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
)

// A relay asks another worker when it has the refusal, and has kept the body only so far.
func TestARefusalAboveTheSlotsWaitsForNoUpload(t *testing.T) {
	full := &slots{}
	full.limit.Store(1)
	full.inFlight.Store(1)
	s := httptest.NewServer(&loadHandler{
		next:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request above the slots arrived") }),
		slots: func(string) *slots { return full },
	})
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbytes\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(procs.Patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no refusal while the upload goes on: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(wire.FailedHeader) != wire.FailedFull || full.inFlight.Load() != 1 {
		t.Errorf("%s %v, %d in flight", resp.Status, resp.Header, full.inFlight.Load())
	}
}
