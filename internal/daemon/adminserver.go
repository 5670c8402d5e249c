package daemon

import (
	"net/http"

	"github.com/ringway/ringway/internal/admin"
)

// AdminConfig says who may use the admin API of a daemon, and what is there. The zero
// value is for loopback: everybody may, without profiles.
type AdminConfig struct {
	// Hosts, TokenFile, TLS and Operators are those of admin.AccessConfig.
	Hosts     []string
	TokenFile string
	TLS       bool
	Operators []string
	// Pprof serves /debug/pprof/.
	Pprof bool
}

// Serve puts mux, guarded, behind server; access has what is not of c. Where
// server.TLSConfig is set afterwards, it wants ServeTLS.
func (c AdminConfig) Serve(server *http.Server, mux *http.ServeMux, access admin.AccessConfig) error {
	if c.Pprof {
		admin.HandlePprof(mux)
	}
	access.Hosts, access.TokenFile, access.TLS, access.Operators = c.Hosts, c.TokenFile, c.TLS, c.Operators
	a, err := admin.NewAccess(access)
	if err != nil {
		return err
	}
	server.Handler = a.Guard(mux)
	a.Secure(server)
	return nil
}
