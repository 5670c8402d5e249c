package relay

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
)

// A record may name any address of its own host, and the admin API of another process
// there believes callers on loopback: the request of a stranger comes from the relay.
func TestTheIngressIsNoWayToTheAdminAPI(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	entry, victim := f.relay(func(*Settings) {}), f.relay(func(*Settings) {})
	f.worker("w1", advertise.Service{Name: "admin", Address: victim.AdminAddr()})
	entry.settled(t, "admin", 1)
	for method, path := range map[string]string{http.MethodGet: "/api/v1/config", http.MethodPost: "/api/v1/drain"} {
		resp, body := entry.call(t, method, path, nil, wire.ServiceHeader+": admin", "Host: 127.0.0.1")
		if resp.StatusCode == http.StatusOK {
			t.Errorf("%s %s through the ingress: %s", method, path, body)
		}
	}
	if victim.drain.on() {
		t.Error("a stranger drained the relay")
	}
}

func TestAnAdminAPIOnASocketAnswersThereAndIsNotAdvertised(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ringway") // short, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "relay.sock")
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.AdminAddr = "unix:" + path })
	other := f.relay(func(*Settings) {})
	other.await(t, "the other relay", func() bool {
		s := other.members.Snapshot()
		return s != nil && len(s.Members()) == 2
	})
	if m, ok := other.members.Snapshot().Get(r.id); !ok || m.AdminAddr != "" {
		t.Errorf("the others are told of %+v", m)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Get("http://localhost/api/v1/members")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || err != nil {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("after the end there is %v", left)
	}
}

// FuzzKeysRequest: an accepted request is one of the three operations and within the bound, and
// an error shows nothing of the request.
func FuzzKeysRequest(f *testing.F) {
	key := membership.GenerateKey()
	f.Add(`{"operation": "install", "argument": "` + key + `"}`)
	f.Add(`{"operation": "use", "argument": "3f9a1c0b"} {"operation": "remove"}`)
	f.Add(`{"operation": "list", "argument": "` + key + `", "more": 1}`)
	f.Add(`{"operation": 7}`)
	f.Fuzz(func(t *testing.T, body string) {
		change, err := decodeKeys(strings.NewReader(body))
		if err != nil {
			if change != (api.KeysRequest{}) || len(body) > 60 && strings.Contains(err.Error(), body) || strings.Contains(err.Error(), key) {
				t.Errorf("%+v, %v", change, err)
			}
			return
		}
		if o := change.Operation; o != membership.InstallKey && o != membership.UseKey && o != membership.RemoveKey {
			t.Errorf("the operation %q", o)
		}
		if len(change.Argument) > 3*maxKeysBody { // a byte that is no UTF-8 becomes three
			t.Errorf("an argument of %d bytes", len(change.Argument))
		}
	})
}
