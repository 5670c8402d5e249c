package health

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// Results of probes, as the metrics count them.
const (
	resultSuccess      = "success"
	resultRefused      = "refused"           // no process listens
	resultUnresolved   = "unresolved"        // the host has no address
	resultTimeout      = "timeout"           // no connection, or no whole answer, in time
	resultUntrusted    = "untrusted"         // TLS: another certificate than expected
	resultNotH2        = "not_h2"            // TLS: none, or without HTTP/2
	resultExhausted    = "exhausted"         // this process can open no connection
	resultClosed       = "closed"            // the connection ended before the answer did
	resultGarbage      = "garbage"           // an answer in another protocol
	resultStatus       = "status"            // an HTTP or gRPC status that is not a success
	resultNotServing   = "not_serving"       // the gRPC service reports another state
	resultUnknown      = "unknown_service"   // the gRPC server does not know the name
	resultNoHealth     = "no_health_service" // the gRPC server has no health service
	resultUnclassified = "other"
)

// failure is why a probe failed: the request, the result and the remedy.
type failure struct {
	result              string
	asked, came, remedy string
	cause               error
}

// Error returns one printable line. Text from the service is quoted.
func (f *failure) Error() string { return f.asked + ": " + f.came + ": " + f.remedy }

func (f *failure) Unwrap() error { return f.cause }

const otherEnd = "see its log, and whether the kind of check is right; if it takes only TLS, offer it with protocol=h2, or use a tcp check"

// broken explains an error of the connection. During names the step of the probe.
func (c Check) broken(during string, err error) *failure {
	f := &failure{cause: err}
	var dns *net.DNSError
	var network net.Error
	exhausted := upstream.Exhausted(err)
	switch {
	case exhausted != "":
		f.result, f.came = resultExhausted, fmt.Sprintf("this process has no %s left: %v", exhausted, err)
		f.remedy = "raise the limit of open files, or find out what uses up the ports or the memory of this host"
	case errors.As(err, &dns):
		f.result, f.came, f.remedy = resultUnresolved, err.Error(), "correct the host, or give an IP address"
	case errors.Is(err, syscall.ECONNREFUSED):
		f.result, f.came, f.remedy = resultRefused, "connection refused", "nothing listens there; start the service, or correct its address"
	case errors.As(err, &network) && network.Timeout():
		f.result, f.came = resultTimeout, fmt.Sprintf("no %s within %v", during, c.Timeout)
		f.remedy = "see whether the service hangs; if it is only slow, raise timeout (and interval)"
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		f.result, f.came, f.remedy = resultClosed, "the service reset the connection", otherEnd
	case errors.Is(err, upstream.ErrUntrusted):
		f.result, f.came, f.remedy = resultUntrusted, err.Error(), "relays would not send requests to it either"
	case errors.Is(err, upstream.ErrNotH2):
		f.result, f.came, f.remedy = resultNotH2, err.Error(), "relays could not send requests to it either"
	case errors.Is(err, io.EOF):
		f.result, f.came, f.remedy = resultClosed, "the service closed the connection in the middle of its answer, or without one", otherEnd
	default:
		f.result, f.came, f.remedy = resultUnclassified, err.Error(), "correct the address, or the network of this host"
	}
	return f
}
