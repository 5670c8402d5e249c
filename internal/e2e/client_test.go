//go:build unix

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// The headers that a relay sets with --expose-route-headers, and the one that
// names a service.
const (
	serviceHeader  = "Ringway-Service"
	relayHeader    = "Ringway-Relay"
	endpointHeader = "Ringway-Endpoint"
	attemptsHeader = "Ringway-Attempts"
)

// client sends requests over connections of its own.
type client struct{ http http.Client }

// newClient returns a client whose connections are closed with the test.
func newClient(t *testing.T) *client { return clientOf(t, &http.Transport{}) }

// newHTTP2Client returns one that speaks clear-text HTTP/2 only.
func newHTTP2Client(t *testing.T) *client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return clientOf(t, &http.Transport{Protocols: protocols})
}

func clientOf(t *testing.T, transport *http.Transport) *client {
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 64, true
	t.Cleanup(transport.CloseIdleConnections)
	return &client{http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// answer is what came back, whole.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	err     error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %v %.1000s", a.status, a.header, a.body)
}

// failure is the JSON of a relay's own answer.
type failure struct {
	Error, Code, Service string
	Attempts             []struct{ Endpoint, Error string }
}

func (a answer) failure() (f failure) {
	_ = json.Unmarshal([]byte(a.body), &f) // only a failure has a code
	return f
}

// request is one to send.
type request struct {
	method, addr, path string
	service            string // sets the header, unless empty
	id                 string // likewise
	payload            io.Reader
	sentTrailer        http.Header
	within             time.Duration // the client waits; 0: patience
}

// send sends and reads the answer, within the time that the client waits.
func (c *client) send(r request) (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.within, patience))
	defer cancel()
	req, err := r.http(ctx)
	if err != nil {
		return answer{err: err}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, trailer: resp.Trailer, body: string(body), err: err}
}

func (r request) http(ctx context.Context) (*http.Request, error) {
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, r.method, "http://"+r.addr+r.path, r.payload)
	if err != nil {
		return nil, err
	}
	req.Trailer = r.sentTrailer
	if r.service != "" {
		req.Header.Set(serviceHeader, r.service)
	}
	if r.id != "" {
		req.Header.Set("X-Request-Id", r.id)
	}
	return req, nil
}

func (c *client) get(addr, path string) answer { return c.send(request{addr: addr, path: path}) }

// call asks a service through a relay.
func (f *fleet) call(r *relay, service string) answer {
	return f.client.send(request{addr: r.Ingress, path: "/", service: service})
}

// api decodes an answer of an admin API and returns its status, 0 when there is
// no answer.
func (f *fleet) api(admin, path string, into any) int {
	a := f.client.get(admin, path)
	if a.err != nil || json.Unmarshal([]byte(a.body), into) != nil {
		return 0
	}
	return a.status
}

// sees reports whether every relay that runs sees, or does not see, a member.
func (f *fleet) sees(id string, want bool) bool {
	for _, r := range f.running() {
		ids := f.IDs(r.Member)
		if len(ids) == 0 || slices.Contains(ids, id) != want {
			return false
		}
	}
	return true
}

// running are the relays that have not ended.
func (f *fleet) running() (relays []*relay) {
	for _, r := range f.relays {
		select {
		case <-r.Done:
		default:
			relays = append(relays, r)
		}
	}
	return relays
}

// readiness is the answer of a member's /readyz.
type readiness struct {
	Status  string
	Reasons []string
}

func (f *fleet) ready(admin string) (readiness, int) {
	var r readiness
	status := f.api(admin, "/readyz", &r)
	return r, status
}

// plan is what /api/v1/services/{name}/plan answers.
type plan struct {
	Service string
	Relays  []struct {
		Relay   string
		Index   int
		Range   string
		Workers []struct {
			Worker string
			Weight float64
		}
	}
	RelaysPerWorker map[string]int `json:"relays_per_worker"`
	Connections     int
}

// serviceView is what /api/v1/services/{name} answers.
type serviceView struct {
	Role      string
	Endpoints int
	Range     int
	Peers     []peerView
}

type peerView struct {
	Node      string
	Connected bool
	Requests  int
}

// metric reads one counter or gauge of a relay, 0 when it is not there yet. The
// labels are in the order of /metrics, which is that of the alphabet.
func (f *fleet) metric(t *testing.T, r *relay, series string) float64 {
	t.Helper()
	a := f.client.get(r.Admin, "/metrics")
	if a.status != 200 {
		t.Fatalf("/metrics of %s: %v", r.ID, a)
	}
	return procs.Metrics(a.body)[series]
}
