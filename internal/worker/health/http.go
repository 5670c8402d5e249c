package health

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// askHTTP sends one request over conn and reads the answer. It does without
// http.Transport, which keeps goroutines of its own for each connection.
func (c Check) askHTTP(conn io.ReadWriter) *failure {
	target, _ := url.ParseRequestURI(c.Path) // Normalize saw that it parses
	target.Scheme, target.Host = "http", c.Address
	request := &http.Request{Method: http.MethodGet, URL: target, Host: c.Host, Close: true,
		Header: http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}}}
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
	if class := response.StatusCode / 100; class != 2 && class != 3 {
		return refusedByHTTP(response, body)
	}
	if err != nil && answer.err != errTooLong {
		return c.unreadable(answer, "end of the answer", protocol, err)
	}
	return nil
}

const userAgent = "ringway-health"

func refusedByHTTP(response *http.Response, body []byte) *failure {
	f := &failure{result: resultStatus, came: strings.TrimSpace(fmt.Sprintf("answered %d %s", response.StatusCode, http.StatusText(response.StatusCode)))}
	if len(body) > 0 {
		f.came += fmt.Sprintf(" %.120q", body)
	}
	switch response.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		f.remedy = "correct the path of the check, or let the service answer GET there"
	case http.StatusUnauthorized, http.StatusForbidden:
		f.remedy = "let the service answer this path without credentials"
	case http.StatusBadRequest:
		f.remedy = "see whether the service expects TLS (then use a tcp check) or another host (then set host)"
	default:
		f.remedy = "the service says so itself; see its log"
	}
	return f
}
