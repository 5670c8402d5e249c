package clusterscript

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A probe of memberlist ends by itself within a second of the shutdown.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
