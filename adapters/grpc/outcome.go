package ringwaygrpc

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/selection"
)

// outcomeOf grades an attempt. The statuses that count as failures are those of the relay's
// request log, which follows OpenTelemetry.
func outcomeOf(info balancer.DoneInfo, streaming bool) selection.Outcome {
	if !info.BytesSent {
		// The connection had just ended, so grpc-go picks again, or the RPC failed in this process.
		return selection.Cancelled
	}
	switch status.Code(info.Err) {
	case codes.Canceled:
		return selection.Cancelled
	case codes.ResourceExhausted:
		return selection.Shed
	case codes.DeadlineExceeded:
		switch {
		case !info.BytesReceived:
			return selection.Failure.WithoutAnswer()
		case streaming: // many streams live until their deadline
			return selection.Cancelled
		}
		return selection.Failure
	case codes.Unavailable, codes.Unknown, codes.Internal, codes.DataLoss, codes.Unimplemented:
		return selection.Failure
	}
	return selection.Success
}
