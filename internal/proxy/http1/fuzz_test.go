package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// readAll runs the framing over input that arrives in pieces of step bytes.
func readAll(d *Body, input []byte, step int) (body []byte, rest int, err error) {
	from, to := 0, 0
	for {
		data, used, err := d.Next(input[from:to])
		from += used
		switch err {
		case nil:
			body = append(body, data...)
		case ErrNeedMore:
			if to == len(input) {
				if d.kind == ToClose {
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

// blankBeforeExtension is in a chunk size line that a recipient must accept (RFC 9112
// §7.1.1), and that net/http refuses.
var blankBeforeExtension = regexp.MustCompile(`[0-9a-fA-F][ \t]+;`)

// FuzzChunks holds the chunked framing against net/http's.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n", "0\r\n\r\n", "1\r\na\r\n1 \r\nb\r\n00\r\n\r\n",
		"fffffffffffffff\r\n", "5\nhello\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5 ;x\r\nhello\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, input []byte, step int) {
		step = min(max(step, 1), 1<<16)
		var trailers []string
		d := Body{kind: Chunked, MaxTrailer: 64 << 10, Trailer: func(name, value []byte) {
			trailers = append(trailers, http.CanonicalHeaderKey(string(name))+"="+string(value))
		}}
		body, rest, err := readAll(&d, input, step)
		if err != nil {
			return
		}
		head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		// net/http takes trailers that fit its buffer; this one is as large as our limit.
		br := bufio.NewReaderSize(io.MultiReader(strings.NewReader(head), bytes.NewReader(input)), 128<<10)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(resp.Body)
		if err != nil && err.Error() == "invalid byte in chunk length" && blankBeforeExtension.Match(input) {
			return
		}
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
