package daemon

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/membership/identity"
)

// AdminConfig says who may use the admin API of a daemon, and what is there. The zero
// value is for loopback: everybody may, without profiles.
type AdminConfig struct {
	// TokenFile, TLS and Operators are those of admin.AccessConfig.
	TokenFile string
	TLS       bool
	Operators []string
	// Pprof serves /debug/pprof/.
	Pprof bool
}

// Serve puts mux, guarded, behind server. Where server.TLSConfig is set afterwards, it
// wants ServeTLS.
func (c AdminConfig) Serve(server *http.Server, mux *http.ServeMux, source *identity.Source, reg prometheus.Registerer) error {
	if c.Pprof {
		admin.HandlePprof(mux)
	}
	access, err := admin.NewAccess(admin.AccessConfig{TokenFile: c.TokenFile, TLS: c.TLS, Identity: source, Operators: c.Operators, Registerer: reg})
	if err != nil {
		return err
	}
	server.Handler = access.Guard(mux)
	access.Secure(server)
	return nil
}
