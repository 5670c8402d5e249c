package upstream_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The ingress lingers half a second on a connection that it closes
		// with the client's body unread; net/http gives nothing to wait for.
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
