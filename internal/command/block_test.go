package command_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	adminapi "github.com/ringway/ringway/internal/process"
)

// blocker is an admin API of relays that each have a block of the callers in has, and the requests
// that it got.
type blocker struct {
	members string // JSON
	has     map[string]bool
	older   bool // it does not know ?relay=
	asked   []string
}

func (b *blocker) start(t *testing.T, id string) (addr string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/blocks", func(w http.ResponseWriter, r *http.Request) {
		b.asked = append(b.asked, id+" "+r.Method+" "+r.URL.RawQuery)
		var change api.BlockRequest
		_ = json.NewDecoder(r.Body).Decode(&change)
		switch meant := r.URL.Query().Get("relay"); {
		case !b.older && meant != "" && meant != id:
			adminapi.WriteError(w, http.StatusConflict, fmt.Sprintf("this relay is %s and not %q", id, meant))
			return
		case change.Operation == api.RemoveBlock && !b.has[id]:
			adminapi.WriteError(w, http.StatusNotFound, "no command has blocked this")
			return
		}
		b.has[id] = change.Operation != api.RemoveBlock
		adminapi.WriteJSON(w, http.StatusOK, api.Blocks{Relay: id, Blocks: []api.Block{{Caller: "x", Service: "*", Until: time.Unix(0, 0), Origin: "command"}}})
	})
	mux.HandleFunc("/api/v1/members", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, b.members) })
	mux.HandleFunc("/api/v1/departures", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// newBlocker starts the relays r1 and r2, and r3 announces the address of r1.
func newBlocker(t *testing.T, has ...string) (b *blocker, addr string) {
	b = &blocker{has: map[string]bool{}}
	for _, id := range has {
		b.has[id] = true
	}
	addr = b.start(t, "r1")
	b.members = fmt.Sprintf(`{"self":"r1","members":[{"id":"r1","role":"relay","admin_addr":%[1]q},{"id":"r2","role":"gate","admin_addr":%[2]q},{"id":"r3","role":"relay","admin_addr":%[1]q}]}`,
		addr, b.start(t, "r2"))
	return b, addr
}

// Every relay announces the same address of loopback unless it is given another.
func TestABlockOfAllRelaysChangesNoneTwiceAndShowsOnlyTheRelayThatIsMeant(t *testing.T) {
	for verb, method := range map[string]string{"add --caller x": "POST", "remove --caller x": "POST", "list": "GET"} {
		for _, older := range []bool{false, true} {
			b, addr := newBlocker(t, "r1", "r2")
			b.older = older
			out, notes, err := execute(t, command.BlockCommand(), append(strings.Fields(verb), "--all", "-o", "yaml", "--admin-addr", addr)...)
			want := `r3: this relay is r1 and not "r3"`
			switch {
			case older && method == "POST" && verb[0] == 'r': // it removes twice, and finds nothing the second time
				want = "r3: nothing matched"
			case older:
				want = `r3: "r1" answers at ` + addr
			}
			if !strings.Contains(notes, want) || strings.Count(notes, "\n") != 1 || err == nil {
				t.Errorf("%s: %v, %s, want %s", verb, err, notes, want)
			}
			if want := []string{"r1 " + method + " relay=r1", "r2 " + method + " relay=r2", "r1 " + method + " relay=r3"}; !slices.Equal(b.asked, want) {
				t.Errorf("%s: %q, want %q", verb, b.asked, want)
			}
			var relays []string
			for d := yaml.NewDecoder(strings.NewReader(out)); ; {
				var one struct{ Relay string }
				if err := d.Decode(&one); err != nil {
					if !errors.Is(err, io.EOF) {
						t.Errorf("%s: %v in\n%s", verb, err, out)
					}
					break
				}
				relays = append(relays, one.Relay)
			}
			if !slices.Equal(relays, []string{"r1", "r2"}) {
				t.Errorf("%s (older %v): shown are %q\n%s", verb, older, relays, out)
			}
		}
	}
}

func TestTheRemovalOfABlockThatNoRelayHasMatchesNothing(t *testing.T) {
	for _, c := range []struct {
		has     []string
		matched bool
		want    string
	}{
		{nil, false, "nothing matched at 2 of 2 relays"},
		{[]string{"r1"}, false, "nothing matched at 1 of 2 relays"},
		{[]string{"r1", "r2"}, true, ""},
	} {
		b, addr := newBlocker(t, c.has...)
		b.members = strings.ReplaceAll(b.members, `"id":"r3","role":"relay"`, `"id":"r3","role":"worker"`)
		_, _, err := execute(t, command.BlockCommand(), "remove", "--caller", "x", "--all", "--admin-addr", addr)
		if errors.Is(err, command.ErrNothingMatched) == c.matched || err != nil && err.Error() != c.want {
			t.Errorf("%v: %v, want %q", c.has, err, c.want)
		}
	}
	_, addr := newBlocker(t) // r3 is none that matches nothing
	if _, _, err := execute(t, command.BlockCommand(), "remove", "--caller", "x", "--all", "--admin-addr", addr); err == nil || errors.Is(err, command.ErrNothingMatched) {
		t.Error(err)
	}
}
