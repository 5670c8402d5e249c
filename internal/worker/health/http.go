package health

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// askHTTP sends one request over conn and reads the answer. It does not use http.Transport,
// which keeps goroutines for each connection.
func (c Check) askHTTP(conn io.ReadWriter) *failure {
	target, _ := url.ParseRequestURI(c.Path) // Normalize has checked that it parses
	target.Scheme, target.Host = "http", c.Address
	request := &http.Request{Method: c.Method, URL: target, Host: c.Host, Close: true,
		Header: http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}}}
	for _, f := range c.fields() {
		if f[0] == "User-Agent" || f[0] == "Accept" {
			request.Header.Del(f[0])
		}
		request.Header.Add(f[0], f[1])
	}
	if err := request.Write(conn); err != nil {
		return c.broken("answer", err)
	}

	const protocol = "HTTP/1.1"
	answer := &answerReader{conn: conn}
	reader := bufio.NewReader(answer)
	response, err := http.ReadResponse(reader, request)
	for err == nil && response.StatusCode/100 == 1 && response.StatusCode != http.StatusSwitchingProtocols {
		response, err = http.ReadResponse(reader, request) // 1xx come before the answer
	}
	if err == nil && response.ProtoMajor != 1 {
		return garbage(protocol, errors.New(response.Proto))
	}
	if err != nil {
		return c.unreadable(answer, "answer", protocol, err)
	}
	body, err := io.ReadAll(response.Body)
	if !c.expects(response.StatusCode) {
		return c.refusedByHTTP(response, body)
	}
	if err != nil && answer.err != errTooLong {
		return c.unreadable(answer, "end of the answer", protocol, err)
	}
	return nil
}

// askHTTP2 is askHTTP over HTTP/2.
func (c Check) askHTTP2(conn io.ReadWriter) *failure {
	head := [][2]string{{":method", c.Method}, {":scheme", c.scheme()}, {":path", c.Path}, {":authority", c.Host}}
	own := c.fields()
	for _, f := range [][2]string{{"accept", "*/*"}, {"user-agent", userAgent}} {
		if !slices.ContainsFunc(own, func(o [2]string) bool { return strings.EqualFold(o[0], f[0]) }) {
			head = append(head, f)
		}
	}
	for _, f := range own {
		head = append(head, [2]string{strings.ToLower(f[0]), f[1]})
	}
	answer, failed := c.call(conn, nil, head)
	if failed != nil {
		return failed
	}
	status, err := strconv.Atoi(answer.httpStatus)
	if err != nil {
		return garbage("HTTP/2", fmt.Errorf("status %.20q", answer.httpStatus))
	}
	if !c.expects(status) {
		return c.refusedByHTTP(&http.Response{StatusCode: status}, answer.body)
	}
	return nil
}

const userAgent = "ringway-health"

func (c Check) refusedByHTTP(response *http.Response, body []byte) *failure {
	f := &failure{result: resultStatus, came: strings.TrimSpace(fmt.Sprintf("answered %d %s", response.StatusCode, http.StatusText(response.StatusCode)))}
	if len(body) > 0 {
		f.came += fmt.Sprintf(" %.120q", body)
	}
	switch response.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		f.remedy = "correct the path of the check, or make the service answer " + c.Method + " there"
	case http.StatusUnauthorized, http.StatusForbidden:
		f.remedy = "make the service answer this path without credentials"
	case http.StatusBadRequest:
		f.remedy = "see whether the service expects TLS (then use a tcp check) or another host (then set host)"
	default:
		f.remedy = "the service itself answered this; see its log"
	}
	if c.Expect != defaultExpect {
		f.remedy = "the check expects " + c.Expect + ": see the log of the service, or correct expect"
	}
	return f
}

// maxAnswer limits the bytes read of an answer.
const maxAnswer = 64 << 10

var errTooLong = errors.New("it is longer than 64 KiB")

// answerReader reads an answer up to maxAnswer and remembers why reading ended: the error
// of a decoder for a truncated line is about the line and not about the truncation.
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

// unreadable explains why a decoder of protocol failed with err. During names the step of
// the probe.
func (c Check) unreadable(r *answerReader, during, protocol string, err error) *failure {
	if r.err != nil && r.err != errTooLong {
		return c.broken(during, r.err)
	}
	if r.err != nil {
		err = r.err
	}
	return garbage(protocol, err)
}

// garbage explains an answer in another protocol.
func garbage(protocol string, err error) *failure {
	return &failure{result: resultGarbage, came: fmt.Sprintf("the answer is not %s: %.200s", protocol, err), cause: err,
		remedy: "correct the kind of check or the address; if the service takes only TLS, offer it with protocol=h2, or use a tcp check"}
}
