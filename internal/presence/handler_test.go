package presence

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
)

// A session in clear text shows no gossip key.
func TestWithAGossipKeyOnlyThisHostBeginsASessionInClearText(t *testing.T) {
	keyring, err := membership.NewKeyring(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		keyring *membership.Keyring
		from    string
		want    int
	}{
		{nil, "192.0.2.7:1", http.StatusUpgradeRequired}, {keyring, "127.0.0.1:1", http.StatusUpgradeRequired},
		{keyring, "[::1]:1", http.StatusUpgradeRequired}, {keyring, "192.0.2.7:1", http.StatusForbidden}, {keyring, "", http.StatusForbidden},
	} {
		s := &Server{fleet: &Fleet{cfg: membership.Config{Keyring: c.keyring}}}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, session.Path, nil) // without the Upgrade
		r.RemoteAddr = c.from
		if s.Handler(http.NotFoundHandler()).ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: answered %d", c, w.Code)
		}
	}
}
