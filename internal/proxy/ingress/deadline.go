package ingress

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/selection/circuit"
)

// grpcTimeoutHeader is gRPC's form of TimeoutHeader; in gRPC it bounds the whole call. See
// "Timeout" in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
const grpcTimeoutHeader = "Grpc-Timeout"

// maxTimeLeft is the limit to which longer times are cut.
const maxTimeLeft = 365 * 24 * time.Hour

// leastAttempt is the minimum time of an attempt, however short the client's deadline,
// unless the deadline itself is shorter.
const leastAttempt = 100 * time.Millisecond

var errTimeLeft = errors.New("the " + TimeoutHeader + " header is not one number of milliseconds with at most 9 digits")

// TimeLeft returns how long the sender of a request waits, according to its header: the
// shorter of both fields. The service refuses a malformed gRPC timeout.
func TimeLeft(h http.Header) (left time.Duration, given bool, err error) {
	if values := h[grpcTimeoutHeader]; len(values) == 1 {
		left, given = parseGRPCTimeout(values[0])
	}
	values := h[TimeoutHeader]
	if values == nil {
		return left, given, nil
	}
	if len(values) != 1 || !isNumber(values[0], 9) {
		return 0, false, errTimeLeft
	}
	ms, _ := strconv.Atoi(values[0])
	if own := time.Duration(ms) * time.Millisecond; !given || own < left {
		left = own
	}
	return left, true, nil
}

// PassTimeLeft appends the timeout fields for a request with this header and this time
// left.
func PassTimeLeft(fields []upstream.Field, h http.Header, left time.Duration) []upstream.Field {
	left = max(left, time.Microsecond)
	ms := int64((left + time.Millisecond - 1) / time.Millisecond) // rounded up, because 0 means that the time is over
	fields = append(fields, upstream.Field{Name: TimeoutHeader, Value: strconv.FormatInt(min(ms, 999_999_999), 10)})
	if values := h[grpcTimeoutHeader]; len(values) == 1 {
		if _, ok := parseGRPCTimeout(values[0]); ok {
			fields = append(fields, upstream.Field{Name: grpcTimeoutHeader, Value: formatGRPCTimeout(left)})
		}
	}
	return fields
}

var grpcUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

func parseGRPCTimeout(v string) (time.Duration, bool) {
	if len(v) < 2 {
		return 0, false
	}
	unit, known := grpcUnits[v[len(v)-1]]
	if !known || !isNumber(v[:len(v)-1], 8) {
		return 0, false
	}
	n, _ := strconv.Atoi(v[:len(v)-1])
	if time.Duration(n) > maxTimeLeft/unit {
		return maxTimeLeft, true
	}
	return time.Duration(n) * unit, true
}

// formatGRPCTimeout uses the smallest unit that fits in eight digits.
func formatGRPCTimeout(left time.Duration) string {
	const most = 99_999_999
	switch {
	case left/time.Microsecond <= most:
		return strconv.FormatInt(int64(left/time.Microsecond), 10) + "u"
	case left/time.Millisecond <= most:
		return strconv.FormatInt(int64(left/time.Millisecond), 10) + "m"
	}
	return strconv.FormatInt(int64(left/time.Second), 10) + "S"
}

func isNumber(v string, digits int) bool {
	if v == "" || len(v) > digits {
		return false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}

// takeDeadline sets how long the request may take. It returns false if it has answered,
// because the request's own deadline is malformed or has passed.
func (t *try) takeDeadline() bool {
	t.timeout = t.handler.cfg.Timeout
	left, given, err := TimeLeft(t.r.Header)
	switch {
	case err != nil:
		t.answer(failure{Text: "the request cannot be carried: " + err.Error(), Code: CodeBadRequest, Service: t.service.Name}, t.began)
		return false
	case given && left == 0:
		t.answer(failure{Text: "the deadline that the request came with was over", Code: CodeTimeout, Service: t.service.Name}, t.began)
		t.circuitOutcome = circuit.Ignored // the service was not asked
		return false
	case given:
		t.limited, t.latest = true, t.began+left
		t.timeout = min(t.timeout, left)
	}
	return true
}

// attemptLimit returns how long the n-th attempt may take. An attempt that another could
// follow leaves time for that one. The last possible attempt gets all the time left,
// because cutting it would gain nothing.
func (t *try) attemptLimit(n int) (limit time.Duration, cut bool) {
	cfg := &t.handler.cfg
	others := len(t.route.Range)
	if t.hop {
		others = len(t.route.Forward)
	}
	if cfg.AttemptTimeout <= 0 || cfg.AttemptTimeout >= cfg.Timeout || cfg.RetryBudget <= 0 || n >= cfg.MaxAttempts || n >= others || !t.mayRepeat() {
		return t.timeout, false
	}
	limit = cfg.AttemptTimeout
	if t.timeout < cfg.Timeout { // the client's deadline shortens attempts in proportion
		scaled := time.Duration(float64(limit) * (float64(t.timeout) / float64(cfg.Timeout)))
		limit = max(scaled, min(limit, leastAttempt))
	}
	if t.hop {
		limit = upstream.BehindRelay(limit) // the attempts of that relay end first
	}
	return limit, true
}

// mayRepeat reports whether a request may be sent again after it was sent, as far as that
// is known before the attempt.
func (t *try) mayRepeat() bool {
	return repeatable(t.r) && (t.body.body == nil || t.body.length >= 0 && t.body.length <= ReplayLimit)
}
