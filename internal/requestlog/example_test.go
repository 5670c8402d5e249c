package requestlog_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/requestlog"
)

// A record becomes one line of the file, at the latest when the log is closed.
func Example() {
	dir, err := os.MkdirTemp("", "requestlog")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "requests.log")
	log, err := requestlog.New(requestlog.Config{File: file, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := log.Start(); err != nil {
		fmt.Println(err)
		return
	}
	record := requestlog.Record{
		Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), ID: "5f1c2a9be03d7714-00000000003f", Relay: "r1", Service: "billing",
		Method: "GET", Path: "/invoices/7", Protocol: "1.1", Status: 200, Outcome: "2xx", BytesOut: 42, Total: 1500 * time.Microsecond,
	}
	if log.Wants(record.Service) {
		log.Add(&record, true)
	}
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(string(text))
	// Output:
	// {"timestamp":"2026-03-01T12:00:00.000000Z","ringway.request.id":"5f1c2a9be03d7714-00000000003f","ringway.relay":"r1","ringway.service":"billing","http.request.method":"GET","url.path":"/invoices/7","network.protocol.name":"http","network.protocol.version":"1.1","http.response.status_code":200,"ringway.outcome":"2xx","http.request.body.size":0,"http.response.body.size":42,"ringway.wait_ms":0,"ringway.connect_ms":0,"ringway.duration_ms":1.500,"ringway.sampled":false}
}
