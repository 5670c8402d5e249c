package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership/identity"
)

// BenchmarkScrape is one scrape of the metrics of a relay that serves 300 services with 5,000
// endpoints, each service with requests.
func BenchmarkScrape(b *testing.B) {
	const services, workers, each = 300, 50, 100
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer backend.Close()
	f := newFleet(b)
	r := f.relay(func(s *Settings) { s.NewServicesPerMinute = services })
	name := func(i int) string { return fmt.Sprintf("service-%03d", i%services) }
	for i := range workers {
		var offers []advertise.Service
		for j := range each {
			offers = append(offers, service(name(i*each+j), backend))
		}
		if err := f.publisher(fmt.Sprintf("w%02d", i), identity.RoleWorker).Offer(offers); err != nil {
			b.Fatal(err)
		}
	}
	for i := range services {
		r.await(b, "the endpoints of "+name(i), func() bool {
			s, ok := r.Routes.Service(name(i))
			return ok && len(s.Route().Endpoints)/(workers*each/services) == 1 && len(r.Reasons()) == 0
		})
		if resp, _ := r.call(b, http.MethodGet, "/", nil, "Ringway-Service: "+name(i)); resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
	}
	url, series, size := "http://"+r.AdminAddr()+"/metrics", 0, 0
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		resp, err := client.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			b.Fatal(err)
		}
		size, series = len(text), strings.Count(string(text), "\n")-strings.Count(string(text), "\n#")
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(size), "B/scrape")
	b.ReportMetric(float64(series), "series")
	b.ReportMetric(float64(memory.HeapAlloc)/1e6, "MB-heap-of-all")
}
