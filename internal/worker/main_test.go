package worker_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for clocks and sockets far more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// A probe of memberlist ends by itself within a second of the shutdown.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
