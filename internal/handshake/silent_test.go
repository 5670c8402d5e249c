package handshake

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

func TestOverTheBoundOfAllStreamsTheOldestSilentOneGoes(t *testing.T) {
	var all Silent
	stream := func(peer string) (conn net.Conn, closed func() bool) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		all.Await(peer, ours)
		return ours, func() bool { return errors.Is(ours.SetDeadline(time.Time{}), io.ErrClosedPipe) }
	}
	oldest, oldestClosed := stream("m-0")
	second, secondClosed := stream("m-1")
	for n := 2; n < MaxSilent; n++ {
		stream(fmt.Sprintf("m-%d", n))
	}
	if oldestClosed() {
		t.Error("closed below the bound")
	}
	newest, newestClosed := stream("another")
	if !oldestClosed() || secondClosed() || newestClosed() || all.Len() != MaxSilent {
		t.Errorf("over the bound: oldest closed %v, second %v, newest %v, %d streams", oldestClosed(), secondClosed(), newestClosed(), all.Len())
	}
	if all.Heard(oldest) || !all.Heard(second) || !all.Heard(newest) {
		t.Error("a stream that was closed has its place, or another has lost its own")
	}
}
