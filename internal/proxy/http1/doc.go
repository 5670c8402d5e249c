// Package http1 reads HTTP/1.1 messages in place: it finds the end of a head, splits
// fields, and extracts a body from the bytes of a connection. The side of the clients and
// the side of the endpoints read with it, so that both draw the same lines.
//
//	bytes ──► HeadEnd ──► ParseField … ──► Body.Next ──► data ──► Body.Next ──► io.EOF
//	           length        offsets          └── more bytes are needed: read, and ask again
//
// Its promise: what RFC 9112 or net/http refuses is refused here too, and what is accepted
// means the same to both. Stricter than net/http: lines end with CR LF, and no line is
// folded. Less strict: a chunk extension may follow blanks, because a recipient must accept
// that (RFC 9112 §7.1.1), and the caller bounds the trailers.
//
// Rules: nothing here reads a connection, takes the time or keeps a reference to the bytes.
// Offsets and data point into the caller's buffer. The errors are values of Malformed and
// ErrNeedMore; callers add whether it was a request or a response.
package http1
