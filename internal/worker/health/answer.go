package health

import (
	"errors"
	"fmt"
	"io"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

var errTooLong = errors.New("it is longer than 64 KiB")

// answerReader reads an answer up to maxAnswer and remembers why there was no
// more: a decoder that meets a torn line complains of the line, not of the tear.
type answerReader struct {
	conn io.Reader
	read int
	err  error
}

func (r *answerReader) Read(p []byte) (n int, err error) {
	if r.read == maxAnswer {
		r.err = errTooLong
		return 0, r.err
	}
	n, r.err = r.conn.Read(p[:min(len(p), maxAnswer-r.read)])
	r.read += n
	return n, r.err
}

// unreadable explains why a decoder of protocol failed with err. During says what
// was waited for.
func (c Check) unreadable(r *answerReader, during, protocol string, err error) *failure {
	if r.err != nil && r.err != errTooLong {
		return c.broken(during, r.err)
	}
	if r.err != nil {
		err = r.err
	}
	return garbage(protocol, err)
}

// garbage explains an answer that is not of the protocol.
func garbage(protocol string, err error) *failure {
	return &failure{result: resultGarbage, came: fmt.Sprintf("the answer is not %s: %.200s", protocol, err), cause: err,
		remedy: "correct the kind of check or the address; if the service takes only TLS, use a tcp check"}
}
