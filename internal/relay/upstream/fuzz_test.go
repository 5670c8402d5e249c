package upstream

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// readAll runs the framing over input that arrives in pieces of step bytes.
func readAll(d *framing, input []byte, step int) (body []byte, rest int, err error) {
	from, to := 0, 0
	for {
		data, used, err := d.next(input[from:to])
		from += used
		switch err {
		case nil:
			body = append(body, data...)
		case errNeedMore:
			if to == len(input) {
				if d.kind == bodyToClose {
					return body, 0, nil
				}
				return body, 0, io.ErrUnexpectedEOF
			}
			to = min(to+step, len(input))
		case io.EOF:
			return body, len(input) - from, nil
		default:
			return body, 0, err
		}
	}
}

// FuzzResponse holds the parser against net/http: what net/http refuses is
// refused, and what is accepted means the same to both.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n005 \r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive, X-A\r\nX-A: b\r\n\r\nhello",
		"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\nA:\t b c \t\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, input []byte, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		n, _, err := headEnd(input, 0)
		if err != nil || n == 0 {
			return // refused, or waits for more
		}
		var h responseHead
		if h.parse(input[:n]) != nil {
			return
		}
		theirs, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(input)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("accepted what net/http refuses: %v\n%q", err, input[:n])
		}
		if theirs.StatusCode != h.status {
			t.Fatalf("status %d, net/http %d", h.status, theirs.StatusCode)
		}
		compareFields(t, &h, input[:n], theirs)

		d := framing{maxTrailer: 64 << 10, kind: kindOf(h, method), remaining: max(h.contentLength, 0)}
		body, _, err := readAll(&d, input[n:], 7)
		if again, _, errAgain := readAll(&framing{maxTrailer: 64 << 10, kind: kindOf(h, method), remaining: max(h.contentLength, 0)}, input[n:], 1<<20); !bytes.Equal(body, again) || (err == nil) != (errAgain == nil) {
			t.Fatalf("the pieces matter: %q %v, at once %q %v", body, err, again, errAgain)
		}
		want, theirErr := io.ReadAll(theirs.Body)
		if theirErr != nil && err == nil {
			t.Fatalf("accepted a body that net/http refuses: %v\n%q", theirErr, input[n:])
		}
		if err == nil && !bytes.Equal(body, want) {
			t.Fatalf("body %q, net/http %q", body, want)
		}
	})
}

func kindOf(h responseHead, method string) bodyKind {
	switch {
	case h.bodyless(method):
		return bodyNone
	case h.chunked:
		return bodyChunked
	case h.contentLength != noLength:
		return bodyLength
	}
	return bodyToClose
}

func compareFields(t *testing.T, h *responseHead, buf []byte, theirs *http.Response) {
	t.Helper()
	ours := make(http.Header)
	for i := range h.fields {
		h.fields[i].hop = false // net/http keeps them
	}
	h.fill(ours, buf, &Exchange{Peer: true})
	for _, hdr := range []http.Header{ours, theirs.Header} {
		for _, name := range []string{"Transfer-Encoding", "Trailer", "Content-Length", "Connection", loadField, "Pragma", "Cache-Control"} {
			hdr.Del(name)
		}
	}
	if len(ours)+len(theirs.Header) > 0 && !reflect.DeepEqual(ours, theirs.Header) {
		t.Fatalf("fields %q, net/http %q", ours, theirs.Header)
	}
}

// FuzzChunks holds the chunked framing against net/http's.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n", "0\r\n\r\n", "1\r\na\r\n1 \r\nb\r\n00\r\n\r\n",
		"fffffffffffffff\r\n", "5\nhello\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, input []byte, step int) {
		step = min(max(step, 1), 1<<16)
		var trailers []string
		d := framing{kind: bodyChunked, maxTrailer: 64 << 10, trailer: func(name, value []byte) {
			trailers = append(trailers, http.CanonicalHeaderKey(string(name))+"="+string(value))
		}}
		body, rest, err := readAll(&d, input, step)
		if err != nil {
			return
		}
		head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		br := bufio.NewReader(io.MultiReader(strings.NewReader(head), bytes.NewReader(input)))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("accepted what net/http refuses: %v", err)
		}
		if !bytes.Equal(body, want) {
			t.Fatalf("body %q, net/http %q", body, want)
		}
		if left, _ := io.ReadAll(br); len(left) != rest {
			t.Fatalf("left %d bytes, net/http %d", rest, len(left))
		}
		count := 0
		for _, v := range resp.Trailer {
			count += len(v)
		}
		if count != len(trailers) {
			t.Fatalf("trailers %q, net/http %v", trailers, resp.Trailer)
		}
	})
}
