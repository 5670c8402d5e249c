package socket_test

import (
	"io"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

func TestUnsentIsWhatTheOtherEndHasNoRoomFor(t *testing.T) {
	near, far := connected(t)
	if n := socket.Unsent(near); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
	more, written, err := make([]byte, 16<<20), 0, error(nil) // than the system holds
	for written == 0 {                                        // on a busy machine the deadline may pass before the write
		_ = near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		written, err = near.Write(more)
	}
	if n := socket.Unsent(socket.Direct(near)); err == nil || n <= 0 || n > written {
		t.Errorf("%d of %d bytes: %v", n, written, err)
	}
	_ = near.(interface{ CloseWrite() error }).CloseWrite()
	if n, err := io.Copy(io.Discard, far); n != int64(written) || err != nil {
		t.Errorf("%d bytes of %d arrived: %v", n, written, err)
	}
	for end := time.Now().Add(10 * time.Second); socket.Unsent(near) > 0; {
		if time.Now().After(end) {
			t.Fatal("something is left after the end")
		}
	}
	_ = near.Close()
	if n := socket.Unsent(near); n != 0 {
		t.Errorf("%d bytes of a connection that was closed", n)
	}
}
