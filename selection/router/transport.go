package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
)

// RoundTrip sends a request to an endpoint of the service that is the host of the URL, and
// returns the response. A failed attempt is repeated at another endpoint as the policy of the
// service and the method allow. Strategies by key take the key of [WithKey], else the header
// Ringway-Key. The error is an [*Error] if the router ended the request. A response of 101 has an
// io.ReadWriteCloser as its body.
func (r *Router) RoundTrip(req *http.Request) (*http.Response, error) {
	service, err := serviceOf(req)
	if err == nil && r.cfg.PickOnly {
		err = errPickOnly
	}
	if err == nil {
		err = r.awaitOffer(req.Context(), service)
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	a := &answer{request: req, local: ingress.Local{Service: service}, ctx: ctx, cancel: cancel}
	in := inbound(req, ctx)
	if in.Body != http.NoBody {
		a.sent = newRequestBody(in.Body)
		in.Body = a.sent
	}
	if err := a.begin(r.attempts, in); err != nil {
		return nil, err
	}
	return a.response, nil
}

var errPickOnly = errors.New("router: the configuration has PickOnly, so the router carries no requests: use Pick, or leave PickOnly unset")

// serviceOf returns the service that a request names.
func serviceOf(req *http.Request) (string, error) {
	if req.URL == nil {
		return "", errors.New("router: the request has no URL")
	}
	if req.URL.Scheme != "http" {
		return "", fmt.Errorf("router: the scheme of %q is not http: the router itself decides on TLS", req.URL.Redacted())
	}
	service := req.URL.Host
	if err := affinity.ValidateService(service); err != nil {
		return "", fmt.Errorf("router: the host of %q must be the name of a service: %w", req.URL.Redacted(), err)
	}
	return service, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // RoundTrip must close it, also if it fails
	}
}

// WithKey sets the key of requests with this context: with a strategy by key, all requests to a
// service with one key go to one worker. Pick takes the key itself.
func WithKey(ctx context.Context, key string) context.Context { return wire.WithKey(ctx, key) }

// inbound returns the request as a server would have received it.
func inbound(req *http.Request, ctx context.Context) *http.Request {
	in := req.WithContext(ctx)
	in.RequestURI, in.ProtoMajor, in.ProtoMinor, in.Proto = "", 1, 1, "HTTP/1.1"
	if in.Method == "" {
		in.Method = http.MethodGet
	}
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	in.Header = canonical(in.Header)
	if key := wire.KeyOf(ctx); key != "" {
		in.Header = maps.Clone(in.Header) // it is the program's
		in.Header[wire.KeyHeader] = []string{key}
	}
	switch {
	case in.Body == nil || in.Body == http.NoBody:
		in.Body, in.ContentLength = http.NoBody, 0
	case in.ContentLength == 0:
		in.ContentLength = -1 // net/http's clients mean an unknown length
	}
	return in
}

// canonical returns a header with the names in the form that a server gives them.
func canonical(header http.Header) http.Header {
	if header == nil {
		return http.Header{}
	}
	all, copied := header, false
	for name, values := range header {
		form := http.CanonicalHeaderKey(name)
		if form == name {
			continue
		}
		if !copied { // the header is that of the program
			all, copied = maps.Clone(header), true
		}
		delete(all, name)
		all[form] = append(slices.Clip(all[form]), values...)
	}
	return all
}
