package wire

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// grpcTimeoutHeader is gRPC's form of TimeoutHeader; in gRPC it bounds the whole call. See
// "Timeout" in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
const grpcTimeoutHeader = "Grpc-Timeout"

// maxTimeLeft is the limit to which longer times are cut.
const maxTimeLeft = 365 * 24 * time.Hour

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
func PassTimeLeft(fields []Field, h http.Header, left time.Duration) []Field {
	left = max(left, time.Microsecond)
	ms := int64((left + time.Millisecond - 1) / time.Millisecond) // rounded up, because 0 means that the time is over
	fields = append(fields, Field{Name: TimeoutHeader, Value: strconv.FormatInt(min(ms, 999_999_999), 10)})
	if values := h[grpcTimeoutHeader]; len(values) == 1 {
		if _, ok := parseGRPCTimeout(values[0]); ok {
			fields = append(fields, Field{Name: grpcTimeoutHeader, Value: formatGRPCTimeout(left)})
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
