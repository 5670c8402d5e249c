package statuspage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/memnet"
)

// changing is a process whose document tests change.
type changing struct {
	mu    sync.Mutex
	d     Document
	looks int
	takes time.Duration // to describe it
}

func (c *changing) config() Config {
	return Config{Registerer: prometheus.NewRegistry(), Document: func(context.Context, string) Document {
		time.Sleep(c.takes) // without the lock, on which a bubble does not wait
		c.mu.Lock()
		defer c.mu.Unlock()
		c.looks++
		return c.d
	}}
}

func (c *changing) change(f func(*Document)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.d)
}

// event is one that came, and when.
type event struct {
	Name string
	// Sections are the ids of those that it has.
	Sections []string
	At       time.Duration
}

// listener is a browser without the network.
type listener struct {
	header http.Header
	status int
	began  time.Time
	events []event
	// process is what the first event names, if that is before the sections.
	process string
	broken  bool
}

func (l *listener) Header() http.Header    { return l.header }
func (l *listener) WriteHeader(status int) { l.status = status }
func (l *listener) Flush()                 {}

func (l *listener) Write(b []byte) (int, error) {
	if l.broken {
		return 0, errors.New("the client went")
	}
	name, data, ok := strings.Cut(string(b), "\ndata: ")
	if ok && strings.HasSuffix(data, "\n\n") && strings.Count(data, "\n") == 2 {
		var sections map[string]string
		if err := json.Unmarshal([]byte(data), &sections); err != nil {
			return 0, err
		}
		if l.process == "" && len(l.events) == 0 && name == "event: process" {
			l.process = sections["identity"]
			return len(b), nil
		}
		l.events = append(l.events, event{strings.TrimPrefix(name, "event: "), slices.Sorted(maps.Keys(sections)), time.Since(l.began)})
	}
	return len(b), nil
}

// listen connects to /events, until the returned function ends it and waits.
func listen(mux http.Handler) (l *listener, stop func()) {
	l = &listener{header: http.Header{}, began: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	req := httptest.NewRequestWithContext(ctx, "GET", "/events", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		mux.ServeHTTP(l, req)
	}()
	return l, func() { cancel(); <-done }
}

func serve(cfg Config) *http.ServeMux {
	mux := http.NewServeMux()
	Handle(mux, cfg)
	return mux
}

// pass lets time pass, and what happens in it be seen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAListenerGetsTheWholePageThenWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{d: relayDocument(4)}
		l, stop := listen(serve(c.config()))
		pass(1250 * time.Millisecond)
		c.change(func(d *Document) { d.InFlight = 99 })
		c.change(func(d *Document) { d.InFlight = 100 }) // before the next event: one has both
		pass(time.Second)
		c.change(func(d *Document) { d.Members[0].State = api.MemberLeaving; d.Ready = false })
		pass(time.Second)
		stop()
		want := []event{
			{"sections", []string{"callers", "figures", "fleet", "links", "members", "peers", "ring", "services", "state"}, 0},
			{"sections", []string{"figures"}, 1500 * time.Millisecond},
			{"sections", []string{"members", "state"}, 2500 * time.Millisecond},
		}
		if diff := cmp.Diff(want, l.events); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if l.header.Get("Content-Type") != "text/event-stream" || l.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", l.header)
		}
	})
}

func TestNoListenerGetsMoreThanOneEventInAnInterval(t *testing.T) {
	for _, interval := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := &changing{d: relayDocument(4)}
			cfg := c.config()
			document, n := cfg.Document, int64(0)
			cfg.Interval = interval
			cfg.Document = func(ctx context.Context, s string) Document { // new each time
				d := document(ctx, s)
				n++
				d.InFlight = n
				return d
			}
			l, stop := listen(serve(cfg))
			pass(10*time.Second + time.Millisecond)
			stop()
			least := interval
			if least == 0 {
				least = 500 * time.Millisecond
			}
			if want := int(10*time.Second/least) + 1; len(l.events) != want {
				t.Errorf("interval %v: %d events, want %d", interval, len(l.events), want)
			}
			for i := 1; i < len(l.events); i++ {
				if gap := l.events[i].At - l.events[i-1].At; gap < least {
					t.Errorf("interval %v: two events within %v", interval, gap)
				}
			}
		})
	}
}

func TestAQuietListenerHearsAHeartbeat(t *testing.T) {
	for _, heartbeat := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := &changing{d: relayDocument(4)}
			cfg := c.config()
			cfg.Heartbeat = heartbeat
			l, stop := listen(serve(cfg))
			pass(31 * time.Second)
			stop()
			every := heartbeat
			if every == 0 {
				every = 15 * time.Second
			}
			if want := 1 + int(31*time.Second/every); len(l.events) != want || l.events[1].Name != "beat" || l.events[1].At != every {
				t.Errorf("heartbeat %v: %v", heartbeat, l.events)
			}
		})
	}
}

func TestAListenerThatIsSlowToDrawRestsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{d: relayDocument(4), takes: time.Second}
		_, stop := listen(serve(c.config()))
		pass(20*time.Second - time.Millisecond)
		if c.looks != 4 {
			t.Errorf("looked %d times in 20 s, want 4: one second of work in five", c.looks)
		}
		stop()
	})
}

// The sections of one service are the same for all, so a second listener costs no drawing.
func TestListenersOfTheSameSectionsShareWhatIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{d: relayDocument(4), takes: time.Second}
		mux := serve(c.config())
		first, stopFirst := listen(mux)
		second, stopSecond := listen(mux)
		pass(20*time.Second - time.Millisecond)
		if c.looks != 4 {
			t.Errorf("looked %d times in 20 s, want 4: one second of work in five", c.looks)
		}
		pass(500 * time.Millisecond)
		c.change(func(d *Document) { d.InFlight++ })
		stopFirst() // while one of them draws
		pass(6 * time.Second)
		stopSecond()
		whole := event{"sections", []string{"callers", "figures", "fleet", "links", "members", "peers", "ring", "services", "state"}, time.Second}
		if diff := cmp.Diff([]event{whole, {"beat", []string{}, 16 * time.Second}}, first.events, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the first (-want +got):\n%s", diff)
		}
		if len(second.events) != 3 || second.events[2].Name != "sections" || second.events[0].At != time.Second {
			t.Errorf("the second: %+v", second.events)
		}
	})
}

func TestNothingIsDrawnWithoutListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{d: relayDocument(4)}
		mux := serve(c.config())
		pass(time.Hour)
		if c.looks != 0 {
			t.Errorf("looked %d times", c.looks)
		}
		_, stop := listen(mux)
		pass(time.Second)
		stop()
		before := c.looks
		pass(time.Hour)
		if before == 0 || c.looks != before {
			t.Errorf("%d looks became %d after the listener went", before, c.looks)
		}
	})
}

func TestAListenerThatTakesNothingMoreIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{d: relayDocument(4)}
		cfg := c.config()
		l, stop := listen(serve(cfg))
		pass(time.Second)
		l.broken = true
		c.change(func(d *Document) { d.InFlight++ })
		pass(time.Second)
		before := c.looks
		pass(time.Minute)
		if c.looks != before {
			t.Error("it is still drawn for")
		}
		if n := gauge(t, cfg, "ringway_status_page_listeners"); n != 0 {
			t.Errorf("%v listeners are counted", n)
		}
		stop()
	})
}

func TestListenersAreBounded(t *testing.T) {
	for _, most := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			c := &changing{d: relayDocument(4)}
			cfg := c.config()
			cfg.Listeners = most
			mux := serve(cfg)
			want := most
			if want == 0 {
				want = 16
			}
			var stops []func()
			for range want {
				_, stop := listen(mux)
				stops = append(stops, stop)
			}
			synctest.Wait()
			over, _ := listen(mux)
			synctest.Wait()
			if over.status != http.StatusServiceUnavailable || over.header.Get("Retry-After") == "" {
				t.Errorf("number %d: %d %v", want+1, over.status, over.header)
			}
			if n := gauge(t, cfg, "ringway_status_page_listeners"); n != float64(want) {
				t.Errorf("%v listeners are counted, want %d", n, want)
			}
			stops[0]()
			next, stop := listen(mux) // there is room again
			pass(time.Second)
			if len(next.events) == 0 {
				t.Errorf("after one went: %d", next.status)
			}
			for _, stop := range append(stops[1:], stop) {
				stop()
			}
			if n := gauge(t, cfg, `ringway_status_page_refused_total`); n != 1 {
				t.Errorf("%v are counted as refused", n)
			}
		})
	}
}

// A page that stays open may reach a newer build at its address, or another member.
func TestTheFirstEventNamesTheProcessAsItsPageDoes(t *testing.T) {
	seen := map[string]string{}
	unchanged := relayDocument(4)
	same := newView(&unchanged, query{}, defaultRows).Identity()
	for name, change := range map[string]func(*Document){
		"the same": func(d *Document) { d.Uptime, d.Ready, d.InFlight = time.Second, false, 0 }, "another member": func(d *Document) { d.ID = "relay-2" },
		"another role": func(d *Document) { d.Role = "gate" }, "another build": func(d *Document) { d.Build = "v1.2.4" }, "another cluster": func(d *Document) { d.Cluster = "other" },
		"another environment": func(d *Document) { d.Environment = "test" }, "another datacenter": func(d *Document) { d.Datacenter = "fra" },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &changing{d: relayDocument(4)}
			change(&c.d)
			l, stop := listen(serve(c.config()))
			synctest.Wait()
			stop()
			page := attr(all(parse(t, get(t, c.config(), "/").Body.Bytes()), "html")[0], "data-process")
			if l.process == "" || l.process != page || len(l.events) != 1 {
				t.Errorf("%s: the event has %q, the page %q; then %v", name, l.process, page, l.events)
			}
			if (l.process == same) != (name == "the same") {
				t.Errorf("%s: the identity is the one of the unchanged process: %t", name, l.process == same)
			}
			if before := seen[l.process]; before != "" {
				t.Errorf("%s has the identity of %s", name, before)
			}
			seen[l.process] = name
		})
	}
}

func TestALargeEventPassesASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{d: relayDocument(4)}
		c.d.Notices[0].Text = strings.Repeat("x", 1<<20)
		network := memnet.New(memnet.Config{})
		defer network.Close()
		socket, err := network.Host("192.0.2.1").Listen("192.0.2.1:80")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: serve(c.config())}
		served := make(chan error, 1)
		go func() { served <- server.Serve(socket) }()
		conn, err := network.Host("192.0.2.2").Dial(t.Context(), socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /events HTTP/1.1\r\nHost: relay\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		began, got, piece := time.Now(), 0, make([]byte, 16<<10)
		for err == nil && got <= 2<<20 { // the section has the text twice
			var n int
			n, err = io.ReadFull(conn, piece)
			got += n
			time.Sleep(time.Second)
		}
		if err != nil || time.Since(began) < time.Minute {
			t.Errorf("%d bytes after %v: %v", got, time.Since(began), err)
		}
		_ = conn.Close()
		_ = server.Close()
		<-served
	})
}

// gauge sums the values of a metric.
func gauge(t *testing.T, cfg Config, name string) (sum float64) {
	t.Helper()
	for _, n := range logtest.Series(t, cfg.Registerer.(*prometheus.Registry), name) {
		sum += n
	}
	return sum
}

// Over a real connection: goleak sees the goroutines that remain when the server, or the client, ends.
func TestTheStreamEndsWithTheServerAndWithTheClient(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		t.Run(end, func(t *testing.T) {
			c := &changing{d: relayDocument(4)}
			cfg := c.config()
			server := httptest.NewServer(serve(cfg))
			defer server.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(answer.Body)
			first, err := lines.ReadString('\n')
			if err != nil || first != "event: process\n" {
				t.Fatalf("%q %v", first, err)
			}
			if end == "server" {
				server.Config.Close()
			} else {
				cancel()
			}
			for err == nil {
				_, err = lines.ReadString('\n')
			}
			_ = answer.Body.Close() // it has failed
			deadline := time.Now().Add(30 * time.Second)
			for gauge(t, cfg, "ringway_status_page_listeners") != 0 {
				if time.Now().After(deadline) {
					t.Fatal("the listener is still there")
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	c := &changing{d: relayDocument(4)}
	cfg := c.config()
	serve(cfg)
	problems, err := testutil.GatherAndLint(cfg.Registerer.(*prometheus.Registry))
	if err != nil || len(problems) > 0 {
		t.Error(err, fmt.Sprint(problems))
	}
}
