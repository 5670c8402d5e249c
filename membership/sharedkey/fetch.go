package sharedkey

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/ringway/ringway/membership"
)

// httpFetch asks relays over HTTP. It is the counterpart of Handler.
type httpFetch struct {
	scheme string
	label  string
	seal   func() []Secret // nil: answers are not sealed
	client func(membership.Member) *http.Client
}

// newHTTPFetch makes the client side of a valid configuration.
func newHTTPFetch(c *Config) *httpFetch {
	f := &httpFetch{scheme: "http", label: c.Label, client: c.Client}
	if c.Authorize != nil {
		f.scheme = "https"
	}
	if c.sealing() {
		f.seal = c.Seal
	}
	if f.client == nil {
		// No proxy from the environment: a key asks its way from relay to relay. No
		// idle connections: relays are asked rarely.
		plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		f.client = func(membership.Member) *http.Client { return plain }
	}
	return f
}

func (f *httpFetch) fetch(ctx context.Context, m membership.Member) (Answer, error) {
	if m.ForwardAddr == "" {
		return Answer{}, fmt.Errorf("it gossips no peer address")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.scheme+"://"+m.ForwardAddr+Path, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("ask: %w", err)
	}
	nonce := make([]byte, nonceBytes)
	if f.seal != nil {
		_, _ = rand.Read(nonce) // never fails
		req.Header.Set(NonceHeader, hex.EncodeToString(nonce))
	}
	client := *f.client(m)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case len(body) > maxAnswer:
		return Answer{}, fmt.Errorf("%w: more than %d bytes", ErrMalformed, maxAnswer)
	case resp.StatusCode == http.StatusForbidden:
		return Answer{}, fmt.Errorf("%w: %s", ErrRefused, refusalText(body))
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound:
		return Answer{}, fmt.Errorf("%w: status %d", ErrMalformed, resp.StatusCode)
	}
	if f.seal != nil {
		if body, err = unsealAny(f.seal(), f.label, nonce, body); err != nil {
			return Answer{}, err
		}
	}
	answer, err := decodeAnswer(f.label, body)
	// The status is not sealed, so the body decides; a 404 of some other server has
	// no such body and is no answer.
	return answer, err
}

// refusalText is what the other side said, as far as it can be shown.
func refusalText(body []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error == "" {
		return "without a reason"
	}
	return fmt.Sprintf("%.200q", said.Error)
}
