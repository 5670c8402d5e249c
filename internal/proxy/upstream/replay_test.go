package upstream

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/wire"
)

// begun is the replay of a body; known reports whether its length is declared.
func begun(body io.Reader, length int, known bool) (*Replay, *http.Request) {
	r := &http.Request{Body: io.NopCloser(body), ContentLength: -1}
	if known {
		r.ContentLength = int64(length)
	}
	var b Replay
	b.Begin(r)
	return &b, r
}

// Whatever an attempt reads, and however the body arrives: the bytes read are the
// body, and after a rewind all of it.
func TestABodyIsReplayedWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(wire.ReplayLimit-2, wire.ReplayLimit+2)).Draw(t, "size")
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i % 251)
		}
		var body io.Reader = bytes.NewReader(content)
		switch rapid.IntRange(0, 2).Draw(t, "arrival") {
		case 1:
			body = iotest.HalfReader(body)
		case 2:
			body = iotest.DataErrReader(body)
		}
		known := rapid.Bool().Draw(t, "length is declared")
		b, r := begun(body, size, known)
		for range rapid.IntRange(1, 3).Draw(t, "attempts") {
			want := rapid.IntRange(0, size).Draw(t, "bytes read")
			got := make([]byte, want)
			if _, err := io.ReadFull(r.Body, got); err != nil || !bytes.Equal(got, content[:want]) {
				t.Fatalf("read %d of %d bytes: %v", want, size, err)
			}
			whole := rapid.Bool().Draw(t, "reads on to the end")
			if whole {
				if rest, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(rest, content[want:]) {
					t.Fatalf("the other %d of %d bytes: %d, %v", size-want, size, len(rest), err)
				}
			}
			again := b.Rewind(nil)
			switch {
			case whole && size <= wire.ReplayLimit && !again:
				t.Fatalf("a body of %d bytes that has arrived is not replayed", size)
			case again && b.begun && !b.ended:
				t.Fatal("a body that is still coming is replayed")
			case again && size > wire.ReplayLimit && b.begun:
				t.Fatalf("a body of %d bytes is replayed", size)
			}
			if !again {
				return
			}
		}
		if all, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(all, content) {
			t.Fatalf("the last attempt read %d of %d bytes, %v", len(all), size, err)
		}
	})
}

// net/http's parsers, and ours, stop at the declared length without asking for
// the end.
func TestABodyOfDeclaredLengthHasEndedWithItsLastByte(t *testing.T) {
	b, r := begun(bytes.NewReader(make([]byte, 10)), 10, true)
	if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil || !b.Rewind(nil) {
		t.Errorf("not replayed: %v", err)
	}
}

// openEnded is a body over HTTP/2 whose end has not arrived: its trailers may follow.
type openEnded struct{ *bytes.Reader }

func (b openEnded) Buffered() (int, bool) { return b.Len(), false }
func (openEnded) Close() error            { return nil }

// The end is read before a small body is sent, so it must not be taken for arrived.
func TestABodyOfDeclaredLengthHasItsTrailersToComeAlsoWhenItIsReplayed(t *testing.T) {
	r := &http.Request{ContentLength: 10, Body: openEnded{bytes.NewReader(make([]byte, 10))}}
	var b Replay
	b.Begin(r)
	if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil || !b.Rewind(nil) {
		t.Fatal("not replayed:", err)
	}
	if n, end := r.Body.(buffering).Buffered(); n != 10 || end {
		t.Errorf("%d bytes are there, the end: %v", n, end)
	}
	if got, err := io.ReadAll(r.Body); err != nil || len(got) != 10 {
		t.Errorf("replayed %d bytes, %v", len(got), err)
	}
	if n, end := r.Body.(buffering).Buffered(); n != 0 || !end {
		t.Errorf("%d bytes behind the end, which has arrived: %v", n, end)
	}
}

func TestABodyThatFailedIsNotReplayed(t *testing.T) {
	b, r := begun(io.MultiReader(bytes.NewReader(make([]byte, 5)), iotest.ErrReader(io.ErrUnexpectedEOF)), 0, false)
	if _, err := io.ReadAll(r.Body); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	if b.Rewind(nil) {
		t.Error("replayed although the rest never came")
	}
}

func TestARequestHasItsOwnBodyBackInTheEnd(t *testing.T) {
	own := io.NopCloser(bytes.NewReader([]byte("x")))
	r := &http.Request{Body: own, ContentLength: 1}
	var b Replay
	b.Begin(r)
	_, _ = io.ReadAll(r.Body)
	b.End(r)
	if r.Body != own {
		t.Error("it still has the replay")
	}
	for _, none := range []*http.Request{{}, {Body: http.NoBody, ContentLength: -1}, {Body: own}} {
		before := none.Body
		b.Begin(none)
		if none.Body != before {
			t.Errorf("a request without a body got one: %+v", none)
		}
		b.End(none)
		if none.Body != before {
			t.Errorf("a request without a body lost what it had: %+v", none)
		}
	}
}
