package containers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

const (
	service = "echo"
	workers = 9
	members = 3 + 1 + workers
	// relaysPerWorker follows from three relays and the default minimum.
	relaysPerWorker = 3
)

// fleet is the compose fleet.
type fleet struct {
	t      *testing.T
	client http.Client
	prefix string // of the fleet's addresses
	token  string // file with the token for the admin API
	entries
}

// entry is a relay or the gate, with its addresses outside the network.
type entry struct {
	name           string
	ingress, admin string
	role           string
}

type entries []entry

// except returns all entries but the one with this name.
func (e entries) except(name string) entries {
	return slices.DeleteFunc(slices.Clone(e), func(one entry) bool { return one.name == name })
}

// startFleet builds the images, creates the secrets and starts the fleet, as `make up`
// does. The end of the test removes all of it.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	if !enabled {
		t.Skip("needs a container engine: make test-containers")
	}
	f := &fleet{t: t, prefix: freeNet(t), client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	t.Cleanup(f.client.CloseIdleConnections)
	secrets := filepath.Join(t.TempDir(), "secrets")
	f.token = filepath.Join(secrets, "admin.token")
	vars := []string{"RINGWAY_IMAGE=" + project, "RINGWAY_TAG=" + tag, "RINGWAY_NET=" + f.prefix, "RINGWAY_SECRETS=" + secrets}
	if os.Geteuid() != 0 {
		vars = append(vars, fmt.Sprintf("RINGWAY_USER=%d:%d", os.Getuid(), os.Getgid()))
	}
	for _, name := range []string{"gate-1", "relay-1", "relay-2", "relay-3"} {
		role, _, _ := strings.Cut(name, "-")
		e := entry{name, procs.FreeAddr(t), procs.FreeAddr(t), role}
		f.entries = append(f.entries, e)
		v := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		vars = append(vars, v+"_PORT="+portOf(e.ingress), v+"_ADMIN_PORT="+portOf(e.admin))
	}
	composeEnv.Lock()
	composeEnv.vars = vars
	composeEnv.Unlock()

	t.Cleanup(f.end)
	must(t, "make", "image", "IMAGE="+project, "TAG="+tag)
	must(t, "deploy/secrets.sh", "bin/image/"+runtime.GOARCH+"/relay", secrets)
	must(t, compose("up", "--detach", "--no-build")...)
	f.awaitWhole()
	return f
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

// end checks how the containers ran, and removes them.
func (f *fleet) end() {
	if logs, err := command(compose("logs", "--no-color")...); err == nil {
		for _, bad := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if strings.Contains(logs, bad) {
				f.t.Errorf("%q in the logs", bad)
			}
		}
		if f.t.Failed() {
			ps, _ := command(compose("ps")...)
			f.t.Logf("%s\n%s", ps, logs[max(0, len(logs)-64<<10):])
		}
	}
	if err := remove(); err != nil {
		f.t.Error(err)
	}
	if left := leftovers(f.t); len(left) > 0 {
		f.t.Errorf("left behind: %v", left)
	}
}

// container is the id of the container of a compose service.
func (f *fleet) container(name string) string {
	f.t.Helper()
	return must(f.t, compose("ps", "--quiet", name)...)
}

// get returns status and body; the status is 0 when there is no answer.
func (f *fleet) get(url, service string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	if service != "" {
		req.Header.Set("Ringway-Service", service)
	}
	return procs.Ask(&f.client, req)
}

// api decodes an answer of the admin API and reports whether the member answered.
func (f *fleet) api(e entry, path string, into any) bool {
	token, err := os.ReadFile(f.token)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.admin+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	status, body, _ := procs.Ask(&f.client, req)
	return status == http.StatusOK && json.Unmarshal(body, into) == nil
}

func (f *fleet) ready(e entry) bool {
	var ignored struct{}
	return f.api(e, "/readyz", &ignored)
}

// sees reports whether a relay has a member in its view, and how many it has.
func (f *fleet) sees(e entry, id string) (there bool, n int) {
	var got struct{ Members []struct{ ID string } }
	f.api(e, "/api/v1/members", &got)
	for _, m := range got.Members {
		there = there || m.ID == id
	}
	return there, len(got.Members)
}

// offered reports whether a relay knows a worker's endpoint.
func (f *fleet) offered(e entry, worker string) (there, known bool) {
	var got struct {
		Catalogue []struct {
			NodeID string `json:"node_id"`
		}
	}
	known = f.api(e, "/api/v1/services/"+service, &got)
	for _, one := range got.Catalogue {
		there = there || one.NodeID == worker
	}
	return there, known
}

// awaitWhole waits until every relay and gate is ready, sees all members and has every
// worker covered, and every relay is connected to its whole range.
func (f *fleet) awaitWhole() {
	f.t.Helper()
	for _, e := range f.entries {
		await(f.t, e.name+" is ready", func() bool { return f.ready(e) })
		await(f.t, fmt.Sprintf("%s sees %d members", e.name, members), func() bool { _, n := f.sees(e, ""); return n == members })
		await(f.t, fmt.Sprintf("in the plan of %s every worker has %d relays", e.name, relaysPerWorker), func() bool {
			var plan struct {
				Connections     int
				RelaysPerWorker map[string]int                     `json:"relays_per_worker"`
				Absent          struct{ Relays, Workers []string } // members that are gone, whose places are kept
			}
			if !f.api(e, "/api/v1/services/"+service+"/plan", &plan) || len(plan.RelaysPerWorker) != workers {
				return false
			}
			for _, n := range plan.RelaysPerWorker {
				if n != relaysPerWorker {
					return false
				}
			}
			return plan.Connections == relaysPerWorker*workers && len(plan.Absent.Relays)+len(plan.Absent.Workers) == 0
		})
		await(f.t, e.name+" is connected to all that it should be", func() bool {
			var got struct{ Peers []struct{ Connected bool } }
			want := workers // three relays: each has all workers
			if e.role == "gate" {
				want = 3
			}
			if !f.api(e, "/api/v1/services/"+service, &got) || len(got.Peers) != want {
				return false
			}
			return !slices.ContainsFunc(got.Peers, func(p struct{ Connected bool }) bool { return !p.Connected })
		})
	}
	var views []string
	await(f.t, "all views have the same checksums", func() bool {
		views = nil
		for _, e := range f.entries {
			var sum struct{ Members, Services string }
			if !f.api(e, "/api/v1/checksum", &sum) {
				return false
			}
			views = append(views, sum.Members+" "+sum.Services)
		}
		slices.Sort(views)
		return len(slices.Compact(views)) == 1
	})
}
