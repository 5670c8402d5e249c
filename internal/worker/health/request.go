package health

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/wire"
)

// methods that an http check may use. A check must change nothing, but some services answer their
// health to POST only.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost}

// defaultExpect is what an http check expects by default.
const defaultExpect = "200-399"

// The limits of what an http check sends and compares.
const (
	maxHeaders     = 16
	maxHeaderBytes = 4096
)

// headerLine returns a line of Check.Header.
func headerLine(name, value string) string {
	return http.CanonicalHeaderKey(strings.TrimSpace(name)) + ": " + strings.TrimSpace(value)
}

// WithHeader returns Header with a field more.
func (c Check) WithHeader(name, value string) Check {
	if c.Header != "" {
		c.Header += "\n"
	}
	c.Header += headerLine(name, value)
	return c
}

// fields returns the names and values of Header.
func (c Check) fields() [][2]string {
	if c.Header == "" {
		return nil
	}
	var fields [][2]string
	for line := range strings.SplitSeq(c.Header, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		fields = append(fields, [2]string{name, value})
	}
	return fields
}

// headerProblem returns why Header cannot be sent, empty if it can.
func (c Check) headerProblem() string {
	fields := c.fields()
	if len(fields) > maxHeaders || len(c.Header) > maxHeaderBytes {
		return fmt.Sprintf("%d headers of %d bytes: want at most %d of %d bytes together", len(fields), len(c.Header), maxHeaders, maxHeaderBytes)
	}
	for _, f := range fields {
		switch name := f[0]; {
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Sprintf("header %.80q: want NAME:VALUE", name)
		case !httpguts.ValidHeaderFieldValue(f[1]):
			return fmt.Sprintf("header %s: the value has a byte that no header may have: leave control characters out", name)
		case name == "Host":
			return "header Host: it has an option of its own: write host=NAME"
		case slices.Contains([]string{"Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Te", "Trailer", "Keep-Alive", "Proxy-Connection", "Expect"}, name), wire.Reserved(name):
			return fmt.Sprintf("header %s: the check cannot set it: leave it out", name)
		}
	}
	return ""
}

// parseExpect reads statuses and ranges of them, such as "200,204,300-399".
func parseExpect(text string) (ranges [][2]int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			last = first
		}
		from, err := parseStatus(first)
		if err != nil {
			return nil, err
		}
		to, err := parseStatus(last)
		if err != nil {
			return nil, err
		}
		if to < from {
			return nil, fmt.Errorf("%s: the range ends before it begins", part)
		}
		ranges = append(ranges, [2]int{from, to})
	}
	if len(ranges) > maxHeaders {
		return nil, fmt.Errorf("%d statuses and ranges: want at most %d", len(ranges), maxHeaders)
	}
	return ranges, nil
}

func parseStatus(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < 200 || n > 599 {
		return 0, fmt.Errorf("%.20q is not a final status, 200 to 599", text)
	}
	return int(n), nil
}

// expects reports whether an answer with the status is good.
func (c Check) expects(status int) bool {
	ranges, _ := parseExpect(c.Expect) // Normalize has checked it
	return slices.ContainsFunc(ranges, func(r [2]int) bool { return r[0] <= status && status <= r[1] })
}
