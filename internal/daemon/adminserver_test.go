package daemon_test

import (
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// TestAnAdminAddressThatOthersReachAsksWhoTheyAre starts with what others can reach.
func TestAnAdminAddressThatOthersReachAsksWhoTheyAre(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		want    string // a part of the error; empty: it starts
	}{
		{"on loopback", []string{"RINGWAY_ADMIN_ADDR=127.0.0.1:7430"}, ""},
		{"on loopback of another name", []string{"RINGWAY_ADMIN_ADDR=localhost:7430"}, ""},
		{"on every interface", []string{"RINGWAY_ADMIN_ADDR=:7430"}, "--admin-token-file FILE"},
		{"on an address of the host", []string{"RINGWAY_ADMIN_ADDR=10.0.0.1:7430"}, "--admin-addr"},
		{"with certificates for gossip alone", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_TLS_CERT=c", "RINGWAY_TLS_KEY=k", "RINGWAY_TLS_CA=a", "RINGWAY_GOSSIP_KEY_FILE=g"}, "--admin-tls"},
		{"with a token", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_ADMIN_TOKEN_FILE=/token"}, ""},
		{"with TLS", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_ADMIN_TLS=true", "RINGWAY_TLS_CERT=c", "RINGWAY_TLS_KEY=k", "RINGWAY_TLS_CA=a"}, ""},
		{"with TLS and no certificate", []string{"RINGWAY_ADMIN_TLS=true"}, "--tls-cert"},
		{"said out loud", []string{"RINGWAY_ADMIN_ADDR=:7430", "RINGWAY_INSECURE=true"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := daemon.DefaultSettings(membership.RoleRelay)
			set := settings.New("relay", "RINGWAY")
			s.Declare(set)
			err := set.Load(settings.Sources{Environ: append(c.environ, "RINGWAY_CLUSTER=c", "RINGWAY_ENVIRONMENT=e")})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
			if got := s.Admin(); got.TokenFile != s.AdminTokenFile || got.TLS != s.AdminTLS || len(got.Operators) != 1 || got.Pprof {
				t.Errorf("%+v", got)
			}
		})
	}
}
