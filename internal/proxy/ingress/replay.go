package ingress

import (
	"io"
	"net/http"

	"github.com/ringway/ringway/internal/wire"
)

// replay is the body of a request to an endpoint that passes requests on: a relay or a
// sidecar. Such an endpoint reads the body before it knows that nothing behind it accepts
// the request, so small bodies are kept until that is known.
//
// Only one attempt reads at a time, and none reads after its Carry has returned.
type replay struct {
	body   io.ReadCloser
	length int64 // as declared, negative if not declared

	kept  []byte
	at    int  // how far the attempt has read kept
	begun bool // a read of body has begun
	ended bool // kept is the whole body
	lost  bool // too long: only body has the rest
}

// begin wraps the body of r, if it has one. The buffer is reused.
func (b *replay) begin(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	*b = replay{body: r.Body, length: r.ContentLength, kept: b.kept[:0]}
	r.Body = b
}

// end restores the original body of r.
func (b *replay) end(r *http.Request) {
	if b.body != nil {
		r.Body = b.body
	}
	*b = replay{kept: b.kept[:0]}
}

// rewind makes the next attempt read from the beginning, if possible. A body that had not
// ended cannot be rewound: the attempt may have been interrupted in the middle of a read.
func (b *replay) rewind() bool {
	b.at = 0
	return !b.lost && (b.ended || !b.begun)
}

func (b *replay) Read(p []byte) (int, error) {
	if b.at < len(b.kept) {
		n := copy(p, b.kept[b.at:])
		b.at += n
		return n, nil
	}
	if b.ended {
		return 0, io.EOF
	}
	b.begun = true
	n, err := b.body.Read(p)
	if b.lost {
		return n, err
	}
	if len(b.kept)+n > wire.ReplayLimit {
		b.kept, b.at, b.lost = b.kept[:0], 0, true
		return n, err
	}
	b.kept = append(b.kept, p[:n]...)
	b.at = len(b.kept)
	b.ended = err == io.EOF || err == nil && b.at == int(b.length)
	return n, err
}

func (b *replay) Close() error { return b.body.Close() }
