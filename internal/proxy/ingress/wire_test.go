package ingress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/internal/wirefixture"
)

// cookieFixtures are session cookies: browsers keep them over an upgrade.
func cookieFixtures() (out []wirefixture.Format) {
	now := time.Unix(1_800_000_000, 0)
	echo := cookieOf("echo", testKeys{"now", "before"})
	for name, key := range map[string]string{"cookie": "now", "cookie-of-a-former-key": "before"} {
		out = append(out, wirefixture.Format{
			Name: name,
			Encode: func() ([]byte, error) {
				return []byte(token{expires: uint64(now.Add(cookieLife).Unix()), service: echo.service, endpoint: tagOf("echo", "w1")}.encode(testKeys{key})), nil
			},
			Decode: func(raw []byte) (any, error) {
				tok, renew, verdict := echo.validate(string(raw), now, cookieLife)
				if verdict != cookieAccepted || tok.endpoint != tagOf("echo", "w1") {
					return nil, errors.New(cookieEvents[verdict])
				}
				return map[string]any{"expires": tok.expires, "renew": renew}, nil
			},
			Refused: map[string]func([]byte) []byte{
				"another version":  func(raw []byte) []byte { raw[1] ^= 1; return raw },
				"more at its end":  func(raw []byte) []byte { return append(raw, "AAAA"...) },
				"another endpoint": func(raw []byte) []byte { raw[40] ^= 1; return raw },
			},
		})
	}
	return out
}

// requestFixtures are the fields that a relay adds to a request for another relay, and for a
// sidecar.
func requestFixtures(t *testing.T) (out []wirefixture.Format) {
	for name, hop := range map[string]bool{"request-to-a-relay": true, "request-to-a-sidecar": false} {
		out = append(out, wirefixture.Format{
			Name: name,
			Encode: func() ([]byte, error) {
				h, _ := hopOr(t, false)
				r := httptest.NewRequest("GET", "/orders?n=1", http.NoBody)
				r.Host, r.RemoteAddr = "echo.svc.test", "192.0.2.1:5000"
				r.Header.Set("Grpc-Timeout", "9S")
				service := h.cfg.Services.(only).service
				target := *service.Route().Range[0]
				target.Secured = !hop
				sender := &request{handler: h, r: r, service: service, toRelay: hop, key: "user-7", exposed: true, from: fromClient, limited: true, latest: 1500 * time.Millisecond}
				sender.at.target = &target
				var text strings.Builder
				for _, f := range sender.changes().Header {
					fmt.Fprintf(&text, "%s: %s\r\n", f.Name, f.Value)
				}
				return []byte(text.String()), nil
			},
			Decode: func(raw []byte) (any, error) {
				fields, err := textproto.NewReader(bufio.NewReader(strings.NewReader(string(raw) + "\r\n"))).ReadMIMEHeader()
				if err != nil {
					return nil, err
				}
				h, seen := hopOr(t, true)
				r := httptest.NewRequest("GET", "/orders?n=1", http.NoBody)
				r.Header = http.Header(fields)
				left, limited, err := wire.TimeLeft(r.Header)
				if err != nil || !limited {
					return nil, fmt.Errorf("no time left: %w", err)
				}
				value := map[string]any{"left": left, "from": r.Header.Get(wire.HopHeader), "key": r.Header.Get(wire.KeyHeader), "exposed": h.exposes(r)}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					return nil, fmt.Errorf("%d %s", w.Code, w.Body)
				}
				passed := seen()
				value["forwarded_for"], value["forwarded_host"], value["forwarded_proto"] = passed.Get("X-Forwarded-For"), passed.Get("X-Forwarded-Host"), passed.Get("X-Forwarded-Proto")
				return value, nil
			},
			Later: map[string]func([]byte) []byte{"a field": func(raw []byte) []byte { return append(raw, "Ringway-Later: 1\r\n"...) }},
		})
	}
	return out
}

// failureFixtures are the answers of a relay itself to another relay.
func failureFixtures(t *testing.T) (out []wirefixture.Format) {
	codes := []wire.Code{"bad_request", "unknown_service", "upstream_failed", "no_endpoint", "not_ready", "overloaded", "client_limit", "timeout", "relay_exhausted", "circuit_open"}
	for _, code := range codes {
		out = append(out, wirefixture.Format{
			Name: "failure-" + string(code),
			Encode: func() ([]byte, error) {
				h, _ := hopOr(t, true)
				w := httptest.NewRecorder()
				h.writeFailure(w, httptest.NewRequest("GET", "/", http.NoBody), failure{Text: "why", Code: code, Service: "echo", Attempts: []Attempt{{"w1", "refused"}}, retryAfter: time.Second})
				return httputil.DumpResponse(w.Result(), true)
			},
			Decode: func(raw []byte) (any, error) {
				answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
				if err != nil {
					return nil, err
				}
				defer answer.Body.Close()
				var body failure
				if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
					return nil, err
				}
				if body.Code != code || answer.StatusCode != StatusOf(code) || wire.Code(answer.Header.Get(wire.FailedHeader)) != code {
					return nil, fmt.Errorf("%d %v, want the code %s", answer.StatusCode, answer.Header, code)
				}
				return map[string]any{"status": answer.StatusCode, "retry_after": answer.Header.Get("Retry-After"), "body": body}, nil
			},
		})
	}
	return out
}

// A fleet has two releases while it is upgraded: requests are forwarded between them, and
// browsers keep the cookies of both.
func TestTheRequestsAndCookiesOfReleasesAreReadAndWritten(t *testing.T) {
	wirefixture.Check(t, append(append(cookieFixtures(), requestFixtures(t)...), failureFixtures(t)...)...)
}
