//go:build unix

package e2e

import (
	"cmp"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

const patience = procs.Patience

type (
	process       = procs.Process
	processConfig = procs.Config
	security      = procs.Security
	claims        = procs.Claims
	ran           = procs.Ran
)

func freeAddr(t *testing.T) string {
	t.Helper()
	return procs.FreeAddr(t)
}

// start starts a process, of the binaries that have the race detector when the
// tests have it unless cfg names others.
func start(t *testing.T, cfg processConfig) *process {
	t.Helper()
	cfg.Dir = cmp.Or(cfg.Dir, binaries)
	return procs.Start(t, cfg)
}

// newSecurity makes an authority and a gossip key for this cluster.
func newSecurity(t *testing.T, dir string) *security {
	t.Helper()
	s, err := procs.NewSecurity(procs.SecurityConfig{Dir: dir, Binaries: plain(t), Cluster: cluster, Environment: environment})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ringway runs a command of relay to its end.
func ringway(t *testing.T, args ...string) ran { return commandOf(t, "relay", args...) }

// commandOf runs a command of a binary to its end.
func commandOf(t *testing.T, binary string, args ...string) ran {
	return procs.Run(processConfig{Binary: binary, Dir: plain(t), Args: args})
}

// plain is where the binaries without race detector are.
func plain(t *testing.T) string {
	dir, err := plainBinaries()
	if err != nil {
		t.Error(err)
	}
	return dir
}
