package relay

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/internal/requestlog"
)

// An operator pages through the records.
func TestAReaderOfATapThatPausesLosesRecordsAndNotItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, err := requestlog.New(requestlog.Config{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		r := &Relay{records: records}
		network := memnet.New(memnet.Config{})
		defer network.Close()
		socket, err := network.Host("192.0.2.1").Listen("192.0.2.1:80")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.tap(w, req, "echo") })}
		served := make(chan error, 1)
		go func() { served <- server.Serve(socket) }()
		conn, err := network.Host("192.0.2.2").Dial(t.Context(), socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: relay\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		const all = 5000
		for range all {
			records.Add(&requestlog.Record{Service: "echo", ID: strings.Repeat("x", 100)}, false)
		}
		time.Sleep(time.Minute)
		got, dropped := 0, 0
		for in := bufio.NewScanner(resp.Body); got+dropped < all && in.Scan(); {
			var record struct {
				Dropped int `json:"ringway.tap.dropped"`
			}
			if err := json.Unmarshal(in.Bytes(), &record); err != nil {
				t.Error(err)
			}
			if dropped += record.Dropped; record.Dropped == 0 {
				got++
			}
		}
		if dropped == 0 || got+dropped != all {
			t.Errorf("%d records came and %d were reported as dropped, of %d", got, dropped, all)
		}
		_ = conn.Close()
		_ = server.Close()
		<-served
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
}
