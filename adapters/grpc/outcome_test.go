package ringwaygrpc_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/selection"
)

func TestEachStatusHasAnOutcome(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]selection.Outcome{
		codes.OK: selection.Success, codes.Canceled: selection.Cancelled, codes.Unknown: selection.Failure,
		codes.InvalidArgument: selection.Success, codes.DeadlineExceeded: selection.Failure, codes.NotFound: selection.Success,
		codes.AlreadyExists: selection.Success, codes.PermissionDenied: selection.Success, codes.ResourceExhausted: selection.Shed,
		codes.FailedPrecondition: selection.Success, codes.Aborted: selection.Success, codes.OutOfRange: selection.Success,
		codes.Unimplemented: selection.Cancelled, codes.Internal: selection.Failure, codes.Unavailable: selection.Failure,
		codes.DataLoss: selection.Failure, codes.Unauthenticated: selection.Success,
	} {
		info := balancer.DoneInfo{Err: status.Error(code, ""), BytesSent: true, BytesReceived: true}
		if got := ringwaygrpc.OutcomeOf(info, false); got != want {
			t.Errorf("%v: outcome %v, want %v", code, got, want)
		}
		info.BytesSent, info.BytesReceived = false, false
		if got := ringwaygrpc.OutcomeOf(info, false); got != selection.Cancelled {
			t.Errorf("%v of an RPC that was not sent: outcome %v, want Cancelled", code, got)
		}
	}
	for name, of := range map[string]struct {
		err                 error
		received, streaming bool
		want                selection.Outcome
	}{
		"a deadline without any answer":               {status.Error(codes.DeadlineExceeded, ""), false, false, selection.NoAnswer},
		"a deadline of a stream without any answer":   {status.Error(codes.DeadlineExceeded, ""), false, true, selection.NoAnswer},
		"a deadline of a stream that has begun":       {status.Error(codes.DeadlineExceeded, ""), true, true, selection.Cancelled},
		"a broken stream":                             {status.Error(codes.Unavailable, ""), true, true, selection.Failure},
		"an error without a status counts as unknown": {errors.New("x"), true, false, selection.Failure},
	} {
		info := balancer.DoneInfo{Err: of.err, BytesSent: true, BytesReceived: of.received}
		if got := ringwaygrpc.OutcomeOf(info, of.streaming); got != of.want {
			t.Errorf("%s: outcome %v, want %v", name, got, of.want)
		}
	}
}
